// Outputs that are an input's memory, updated: {"name": ..., "updates": "kv_pages"}.
#include <algorithm>

#include "spec/check/suggest.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

bool same_shapes(const std::vector<Shape>& a, const std::vector<Shape>& b) {
  const auto same_extent = [](const Extent& x, const Extent& y) { return x.text == y.text; };
  const auto same_shape = [&](const Shape& x, const Shape& y) {
    return x.form == y.form && std::equal(x.extents.begin(), x.extents.end(), y.extents.begin(), y.extents.end(), same_extent);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_shape);
}

// Several elements of the call would be one in memory: which of them it holds afterwards, nobody could say.
void refuse_broadcast(const JsonNode& node, const TensorSpec& input) {
  for (const Shape& shape : input.shapes)
    for (const Extent& extent : shape.extents)
      if (extent.kind == Extent::Kind::dim_or_one)
        return node.fault("'" + input.name + "' may be broadcast along `" + extent.text +
                          "`, so it cannot be updated; give it the shape of what is written");
}

TensorSpec* input_named(Spec& spec, const std::string& name) {
  const auto found = std::find_if(spec.tensors.begin(), spec.tensors.end(), [&](const auto& t) { return !t.output && t.name == name; });
  return found == spec.tensors.end() ? nullptr : &*found;
}

}  // namespace

Output load_updating_output(const JsonNode& node, Spec& spec) {
  Output output{node.text("name"), node.text("doc"), node.text("updates")};
  const JsonNode updates = field_or(node, "updates");
  TensorSpec* input = input_named(spec, output.updates);
  if (!input) {
    std::vector<std::string> known;
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.output) known.push_back(tensor.name);
    if (!output.updates.empty()) updates.fault("'" + output.updates + "' is no input" + suggestion(output.updates, known));
    return output;
  }
  if (!input->updated_as.empty()) updates.fault("'" + input->name + "' is updated already, by the output '" + input->updated_as + "'");
  input->updated_as = output.name;
  refuse_broadcast(updates, *input);
  if (const std::string type = node.text("type"); !type.empty() && type != input->type)
    field_or(node, "type")
        .fault("'" + output.name + "' is the memory of '" + input->name + "', whose type is '" + input->type +
               "'; say that type or leave it out");
  if (const auto shape = node.field("shape"); shape && !same_shapes(load_shapes(*shape, spec), input->shapes))
    shape->fault("'" + output.name + "' is the memory of '" + input->name + "' and has its shape; say that shape or leave it out");
  return output;
}

}  // namespace ejk::spec
