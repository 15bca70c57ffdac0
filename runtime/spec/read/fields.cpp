// The table of known fields.
#include "spec/read/fields.hpp"

#include <stdexcept>
#include <string>

namespace ejk::spec {
namespace {

constexpr bool required = true;

const std::vector<ObjectFields>& table() {
  using enum FieldKind;
  static const std::vector<ObjectFields> rows = {
      {"kernel",
       {{"kernel", text, required},
        {"doc", doc, required},
        {"dims", object, required},
        {"types", object},
        {"forms", list},
        {"attributes", list},
        {"inputs", list, required},
        {"outputs", list, required},
        {"requires", list},
        {"gradient", any},
        {"tuning", object},
        {"batch", object},
        {"cost", object, required},
        {"same_as", object},
        {"let", object},
        {"variants", list},
        {"cases", list, required},
        {"tolerance", object, required}}},
      {"dim", {{"doc", doc, required}, {"value", expression, required}}},
      {"type", {{"any", list, required}, {"default", text, required}}},
      {"form", {{"name", text, required}, {"when", expression, required}, {"doc", doc, required}}},
      {"attribute",
       {{"name", text, required},
        {"type", text, required},
        {"default", expression},
        {"optional", boolean},
        {"varies", boolean},
        {"choices", list},
        {"matters", expression},
        {"doc", doc, required}}},
      {"input",
       {{"name", text, required},
        {"type", text, required},
        {"shape", any, required},
        {"optional", boolean},
        {"fill", text},
        {"matters", expression},
        {"doc", doc, required}}},
      {"output",
       {{"name", text, required},
        {"type", text, required},
        {"shape", any, required},
        {"optional", boolean},
        {"for", text},
        {"precision", expression},
        {"doc", doc, required}}},
      {"updating_output", {{"name", text, required}, {"updates", text, required}, {"type", text}, {"shape", any}, {"doc", doc, required}}},
      {"requirement", {{"that", expression, required}, {"else", doc, required}, {"reads", any}}},
      {"gradient", {{"kernel", text, required}}},
      {"gradient_call", {{"kernel", text, required}, {"tensors", object, required}, {"attributes", object}}},
      {"gradient_equal", {{"tensor", text, required}, {"is", text, required}}},
      {"same_as", {{"kernel", text, required}, {"attributes", object}}},
      {"tuning", {{"nearest", list, required}}},
      {"batch", {{"dim", text, required}, {"if", expression}}},
      {"fold", {{"if", expression}, {"same", list}}},
      {"cost", {{"flops", expression, required}, {"bytes", expression, required}}},
      {"variant",
       {{"name", text, required},
        {"doc", doc},
        {"like", text},
        {"archs", list, required},
        {"priority", integer},
        {"template", text, required},
        {"supports", any},
        {"specialize", object},
        {"config", object},
        {"let", object},
        {"valid", list},
        {"heuristic", list},
        {"workspace", list},
        {"launches", list, required},
        {"fold", object},
        {"flags", list},
        {"limits", object}}},
      {"config_parameter", {{"values", list, required}, {"label", text}, {"doc", doc}}},
      {"rule", {{"if", expression}, {"use", object, required}}},
      {"workspace", {{"name", text, required}, {"type", text, required}, {"shape", list, required}, {"zero", expression}, {"doc", doc}}},
      {"launch",
       {{"entry", text, required},
        {"like", text},
        {"if", expression},
        {"grid", list, required},
        {"block", list},
        {"shared", expression},
        {"args", list, required},
        {"cluster", list},
        {"repeat", expression},
        {"in_turn", boolean},
        {"cooperative", boolean},
        {"overlaps", boolean}}},
      {"tensor_map", {{"tensor_map", any, required}, {"box", list, required}, {"swizzle", integer}}},
      {"map_choice", {{"if", expression}, {"tensor", text, required}}},
      {"case", {{"name", text, required}, {"doc", doc}, {"like", text}, {"each", object}, {"given", list}, {"fill", object}}, true},
      {"arch",
       {{"arch", text, required},
        {"platform", text, required},
        {"doc", doc, required},
        {"extends", text},
        {"machine", text},
        {"features", list},
        {"flags", list, required},
        {"properties", object, required}}},
  };
  return rows;
}

}  // namespace

std::span<const ObjectFields> known_fields() { return table(); }

const ObjectFields& fields_of(std::string_view object) {
  for (const ObjectFields& row : table())
    if (row.object == object) return row;
  throw std::logic_error("no fields are known for '" + std::string(object) + "'");
}

}  // namespace ejk::spec
