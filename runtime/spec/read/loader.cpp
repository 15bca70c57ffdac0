// Reads a spec file: the contract first, because variants and cases speak of its names.
#include "spec/read/loader.hpp"

#include <map>

#include "spec/read/like.hpp"
#include "spec/read/load_parts.hpp"
#include "spec/read/spec_size.hpp"

namespace ejk::spec {
namespace {

void load_variants(const JsonNode& kernel, Spec& spec) {
  std::map<std::string, std::string> seen;
  for (const JsonNode& node : kernel.list("variants")) {
    Variant variant = load_variant(node, spec);
    const auto [first, fresh] = seen.emplace(variant.name, node.pointer());
    if (!fresh && !variant.name.empty())
      field_or(node, "name").fault("the name '" + variant.name + "' is already that of " + first->second);
    spec.variants.push_back(std::move(variant));
  }
}

void load_same_as(const JsonNode& kernel, Spec& spec) {
  const auto node = kernel.field("same_as");
  const bool has_variants = kernel.field("variants").has_value();
  if (!node && !has_variants) kernel.fault("the field 'variants' is missing, and there is no 'same_as'");
  if (!node || !node->json().is_object() || !node->open("same_as")) return;
  if (has_variants) node->fault("a kernel that is served by another has no 'variants'");
  spec.same_as = SameAs{node->text("kernel"), {}};
  for (const auto& [name, member] : node->members("attributes")) spec.same_as->attributes.push_back({name, member.expression()});
}

std::vector<Case> load_cases(const JsonNode& kernel, const Spec& spec) {
  std::vector<Case> cases;
  std::map<std::string, std::string> seen;
  for (const JsonNode& node : kernel.list("cases")) {
    for (Case& one : load_case(node, spec)) {
      const auto [first, fresh] = seen.emplace(one.name, node.pointer());
      if (!fresh && !one.name.empty()) node.fault("the case '" + one.name + "' occurs twice; the other is at " + first->second);
      cases.push_back(std::move(one));
    }
    if (cases.size() <= widest) continue;
    node.fault("with the combinations of this case there are more than " + std::to_string(widest) + " cases");
    break;
  }
  return cases;
}

Cases cases_of(const std::string& file, const std::string& text) {
  return Cases([file, text] {
    std::vector<Fault> faults;
    auto spec = load_spec(file, text, faults);
    if (!faults.empty()) throw SpecError(std::move(faults));
    return spec->cases.all();
  });
}

}  // namespace

std::optional<Spec> load_spec(const std::string& file, const std::string& text, std::vector<Fault>& faults, WhenCases when) {
  const std::size_t before = faults.size();
  auto json = parse_json(file, text, faults, when == WhenCases::now ? "" : "cases");
  if (!json) return std::nullopt;
  FileFaults found(file, faults);
  const JsonNode kernel(*json, "", found);
  check_widths(*json, found);
  if (!found.any()) resolve_like(*json, found);
  Spec spec;
  spec.file = file;
  if (!found.any() && kernel.open("kernel")) {  // where something is like nothing, what is missing in it is no news
    load_contract(kernel, spec);
    load_same_as(kernel, spec);
    load_variants(kernel, spec);
    spec.cases = when == WhenCases::now ? Cases(load_cases(kernel, spec)) : cases_of(file, text);
  }
  if (!found.any()) {
    spec.origins = std::move(found.origins());
    return spec;
  }
  if (when == WhenCases::now) {
    found.sort_as_in(parse_json(file, text, faults).value_or(Json()));  // not made whole
    return std::nullopt;
  }
  faults.resize(before);  // perhaps a field stands after the cases
  return load_spec(file, text, faults, WhenCases::now);
}

}  // namespace ejk::spec
