// Reads a spec file: the contract first, because variants and cases speak of its names.
#include "spec/read/loader.hpp"

#include <map>
#include <memory>

#include "spec/read/excerpt.hpp"
#include "spec/read/like.hpp"
#include "spec/read/load_parts.hpp"
#include "spec/read/spec_size.hpp"
#include "spec/read/spread_cases.hpp"

namespace ejk::spec {
namespace {

// left: by index, which are not there.
std::vector<Variant> load_variants(const JsonNode& kernel, const Spec& spec, const std::vector<bool>& left = {}) {
  std::vector<Variant> variants;
  std::map<std::string, std::string> seen;
  for (const JsonNode& node : kernel.list("variants")) {
    const std::size_t index = variants.size();
    Variant& variant = variants.emplace_back();
    if (index < left.size() && left[index]) continue;
    variant = load_variant(node, spec);
    const auto [first, fresh] = seen.emplace(variant.name, node.pointer());
    if (!fresh && !variant.name.empty())
      field_or(node, "name").fault("the name '" + variant.name + "' is already that of " + first->second);
  }
  return variants;
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
      const auto [first, fresh] = seen.emplace(one.name, node.written_at());
      if (!fresh && !one.name.empty()) node.fault("the case '" + one.name + "' occurs twice; the other is at " + first->second);
      cases.push_back(std::move(one));
    }
    if (cases.size() <= widest) continue;
    node.fault("with the combinations of this case there are more than " + std::to_string(widest) + " cases");
    break;
  }
  return cases;
}

std::optional<Spec> load_whole(const std::string& file, const std::string& text, std::vector<Fault>& faults) {
  auto json = parse_json(file, text, faults);
  if (!json) return std::nullopt;
  FileFaults found(file, faults);
  const JsonNode kernel(*json, "", found);
  Spec spec;
  spec.file = file;
  if (make_whole(*json, found) && kernel.open("kernel")) {
    load_contract(kernel, spec);
    load_same_as(kernel, spec);
    spec.variants = Variants(load_variants(kernel, spec));
    spec.cases = Cases(load_cases(kernel, spec));
  }
  if (found.any()) {
    found.sort_as_in(parse_json(file, text, faults).value_or(Json()));  // not made whole
    return std::nullopt;
  }
  spec.origins = std::move(found.origins());
  return spec;
}

// What is kept of a spec that is not read whole.
struct Source {
  std::string file, text;
  Judge judge;
};

Cases cases_of(const std::shared_ptr<const Source>& source) {
  return Cases([source] {
    std::vector<Fault> faults;
    auto spec = load_spec(source->file, source->text, faults);
    if (!faults.empty()) throw SpecError(std::move(faults));
    return spec->cases.all();
  });
}

// The variants of the list, beside a contract that was read before.
std::optional<Variants> load_list(const Source& source, std::string_view list, Spec spec, std::vector<Fault>& faults) {
  auto json = parse_json(source.file, "{\"variants\":" + std::string(list) + "}", faults);
  if (!json) return std::nullopt;
  FileFaults found(source.file, faults);
  if (make_whole(*json, found)) spec.variants = Variants(load_variants(JsonNode(*json, "", found), spec));
  if (found.any()) return std::nullopt;
  spec.origins = std::move(found.origins());
  if (source.judge) source.judge(spec, faults);
  return spec.variants;
}

// All variants; throws what is wrong, as it is told where the file is read at once.
Variants variants_of(const Source& source, std::string_view list, const Spec& contract) {
  std::vector<Fault> faults;
  if (auto variants = load_list(source, list, contract, faults); faults.empty()) return *std::move(variants);
  faults.clear();
  const auto spec = load_spec(source.file, source.text, faults, Later::cases);
  if (spec && source.judge) source.judge(*spec, faults);
  if (!faults.empty()) throw SpecError(std::move(faults));
  return spec->variants;
}

// nullopt: there are faults, or doubts, and the text is to be read as a whole.
std::optional<Spec> load_excerpt(std::shared_ptr<const Source> source, Later later) {
  const auto excerpt = excerpt_of(source->text, later);
  std::vector<Fault> faults;
  auto json = excerpt ? parse_json(source->file, excerpt->text, faults) : std::nullopt;
  if (!json) return std::nullopt;
  FileFaults found(source->file, faults);
  const JsonNode kernel(*json, "", found);
  Spec spec;
  spec.file = source->file;
  if (!make_whole(*json, found) || !kernel.open("kernel")) return std::nullopt;
  load_contract(kernel, spec);
  load_same_as(kernel, spec);
  auto variants = load_variants(kernel, spec, excerpt->left);
  if (found.any()) return std::nullopt;
  spec.cases = cases_of(source);
  spec.variants = excerpt->left.empty() ? Variants(std::move(variants))
                                        : Variants(std::move(variants), excerpt->left, [source, list = excerpt->variants, contract = spec] {
                                            return variants_of(*source, list, contract);
                                          });
  spec.origins = std::move(found.origins());
  return spec;
}

}  // namespace

bool make_whole(Json& kernel, FileFaults& found) {
  check_widths(kernel, found);
  CopyRoom room(found);
  if (!found.any()) spread_cases(kernel, found, room);
  if (!found.any()) resolve_like(kernel, found, room);
  return !found.any();
}

std::optional<Spec> load_spec(const std::string& file, const std::string& text, std::vector<Fault>& faults, Later later, Judge judge) {
  if (later != Later::nothing)
    if (auto spec = load_excerpt(std::make_shared<const Source>(Source{file, text, std::move(judge)}), later)) return spec;
  return load_whole(file, text, faults);
}

}  // namespace ejk::spec
