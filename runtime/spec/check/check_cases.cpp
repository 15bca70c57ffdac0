// Every case against the contract and against every variant.
#include "spec/check/check_cases.hpp"

#include <algorithm>
#include <set>

#include "spec/call/binder.hpp"
#include "spec/check/check_names.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/json.hpp"
#include "spec/read/locate.hpp"
#include "spec/render/image.hpp"

namespace ejk::spec {
namespace {

// One variant over all cases.
struct Reach {
  const Variant* variant = nullptr;
  std::vector<const Arch*> archs;
  bool supported = false, has_config = false;
  std::string first_refusal;  // "'contiguous(x)' refuses case 'a' on cpu:generic"
  std::string empty_space;    // the first case whose space is empty, in words
  std::vector<Fault> heuristic_faults;
};

class CaseCheck {
 public:
  CaseCheck(const Spec& spec, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults) : spec_(spec), faults_(faults) {
    for (const Variant& variant : spec.variants)
      reach_.push_back({&variant, archs_covered(variant.archs, archs), false, false, {}, {}, {}});
  }

  void run() {
    for (const Case& one : spec_.cases) check(one);
    if (contract_broken_) return;  // the variants were not tried on every case
    if (spec_.same_as) return;     // what no case here reaches is for the kernel that has the variants
    for (Reach& reach : reach_) conclude(reach);
  }

 private:
  // The first fault of a place says enough: cases that came of one list repeat it.
  void fault(const std::string& pointer, std::string sentence) {
    if (seen_.insert(pointer).second) faults_.push_back({spec_.file, pointer, std::move(sentence)});
  }

  static std::string in_case(const Case& one) { return "case '" + one.name + "'"; }

  void check(const Case& one) {
    try {
      const Binding binding = bind(spec_, facts_of(spec_, one));
      allocated(one, binding);
      cost(one, binding, "/cost/flops", spec_.flops);
      cost(one, binding, "/cost/bytes", spec_.bytes);
      variants(one, binding);
      return;
    } catch (const CallError& error) {
      fault(one.pointer, in_case(one) + " is no legal call: " + error.what());
    } catch (const ExpressionError& error) {
      fault(one.pointer, in_case(one) + " cannot be evaluated: " + error.what());
    } catch (const SpecError& error) {
      for (const Fault& each : error.faults()) fault(each.where, in_case(one) + ": " + each.sentence);
    }
    contract_broken_ = true;
  }

  // A caller may leave outputs to be allocated: their shapes must follow from the inputs, and be those that the case has.
  void allocated(const Case& one, const Binding& binding) {
    CallFacts facts = binding.facts;
    for (const TensorSpec& tensor : spec_.tensors)
      if (tensor.output) facts.tensors.erase(tensor.name);
    const Binding bare = bind(spec_, std::move(facts));
    for (const TensorSpec& tensor : spec_.tensors) {
      const auto given = binding.facts.tensors.find(tensor.name);
      if (!tensor.output || given == binding.facts.tensors.end() || needs_data(bare)) continue;
      try {
        const auto shape = output_facts(bare, tensor).shape;
        if (shape != given->second.shape) wrong_shape(one, tensor, shape, given->second.shape);
      } catch (const ExpressionError& error) {
        fault(output_pointer(tensor),
              in_case(one) + ": a call that leaves '" + tensor.name + "' to be allocated cannot tell its shape: " + error.what());
      }
    }
  }

  void wrong_shape(const Case& one, const TensorSpec& tensor, const std::vector<std::int64_t>& allocated,
                   const std::vector<std::int64_t>& named) {
    fault(output_pointer(tensor), in_case(one) + ": a call that leaves '" + tensor.name + "' to be allocated gets the shape " +
                                      shape_text(allocated) + ", where the case has " + shape_text(named) +
                                      "; of alternatives the one of most dimensions is taken whose dims the inputs give a size");
  }

  std::string output_pointer(const TensorSpec& tensor) const {
    for (std::size_t i = 0; i < spec_.outputs.size(); ++i)
      if (spec_.outputs[i].name == tensor.name) return pointer_to("/outputs", i);
    return "/outputs";
  }

  void cost(const Case& one, const Binding& binding, const std::string& pointer, const Expression& expression) {
    try {
      expression.floating(binding);
    } catch (const ExpressionError& error) {
      fault(pointer, in_case(one) + ": " + error.what());
    }
  }

  void variants(const Case& one, const Binding& binding) {
    std::string refusals;
    bool supported = false;
    for (Reach& reach : reach_) {
      std::vector<std::pair<const Arch*, std::string>> clauses;
      for (const Arch* arch : reach.archs)
        if (const auto clause = tried(one, reach, *arch, binding))
          clauses.emplace_back(arch, *clause);
        else
          supported = true;
      if (reach.first_refusal.empty() && !clauses.empty())
        reach.first_refusal = "'" + clauses[0].second + "' refuses " + in_case(one) + " on " + clauses[0].first->full_name();
      for (const std::string& words : in_words(*reach.variant, clauses)) refusals += (refusals.empty() ? "" : "; ") + words;
    }
    if (supported) return;
    fault(one.pointer, "no variant supports " + in_case(one) + ": " + (reach_.empty() ? "the kernel has no variants" : refusals));
  }

  // The clause that refuses; nullopt: supported, and the variant's answer for this case was judged.
  std::optional<std::string> tried(const Case& one, Reach& reach, const Arch& arch, const Binding& binding) {
    try {
      if (auto clause = refusal(*reach.variant, arch, binding)) return clause;
      reach.supported = true;
      configure(one, reach, arch, binding);
    } catch (const ExpressionError& error) {
      located(one, *reach.variant, arch, error, find_in_supports(*reach.variant, arch, binding));
      reach.supported = reach.has_config = true;  // not known; the fault above is enough
    }
    return std::nullopt;
  }

  // "rows wants 'C % 8 == 0'", with the archs where they differ in it.
  static std::vector<std::string> in_words(const Variant& variant, const std::vector<std::pair<const Arch*, std::string>>& clauses) {
    std::vector<std::string> words;
    const bool same = std::all_of(clauses.begin(), clauses.end(), [&](const auto& each) { return each.second == clauses[0].second; });
    for (const auto& [arch, clause] : clauses) {
      words.push_back(variant.name + (same ? "" : " on " + arch->full_name()) + " wants '" + clause + "'");
      if (same) break;
    }
    return words;
  }

  void located(const Case& one, const Variant& variant, const Arch& arch, const ExpressionError& error, const std::optional<Place>& place) {
    fault(place ? place->pointer : variant.pointer,
          in_case(one) + " on " + arch.full_name() + ": " + (place ? place->sentence : std::string(error.what())));
  }

  void configure(const Case& one, Reach& reach, const Arch& arch, const Binding& binding) {
    const Variant& variant = *reach.variant;
    std::optional<Config> config;
    try {
      config = heuristic_config(variant, arch, binding);
    } catch (const ExpressionError& error) {
      reach.has_config = true;
      return located(one, variant, arch, error, find_in_heuristic(variant, arch, binding));
    }
    try {
      const auto broken = config ? invalid_clause(variant, arch, binding, *config) : std::optional<std::string>("no rule holds");
      if (broken) return bad_config(one, reach, arch, binding, config, *broken);
      reach.has_config = true;
    } catch (const ExpressionError& error) {
      reach.has_config = true;
      return located(one, variant, arch, error, find_in_valid(variant, arch, binding, *config));
    }
    launches(one, variant, arch, binding, *config);
  }

  void launches(const Case& one, const Variant& variant, const Arch& arch, const Binding& binding, const Config& config) {
    try {
      if (!needs_data(binding)) geometry_of(variant, arch, binding, config);
      image(variant, arch, binding, config);
    } catch (const ExpressionError& error) {
      located(one, variant, arch, error, find_in_launches(variant, arch, binding, config));
    }
  }

  // A dim that only the data of a call tells and that the case does not name: launches cannot be evaluated.
  bool needs_data(const Binding& binding) const {
    return std::any_of(spec_.dims.begin(), spec_.dims.end(), [&](const Dim& dim) {
      return dim.value && !dim.value.name_calls().empty() && !binding.dims.count(dim.name) && is_given(dim, binding);
    });
  }

  static bool is_given(const Dim& dim, const Binding& binding) {
    for (const std::string& tensor : dim.value.subjects())
      if (!binding.facts.tensors.count(tensor)) return false;
    return true;
  }

  static std::string text_of(const Config& config) {
    std::string text;
    for (const auto& [name, value] : config) text += (text.empty() ? "" : ", ") + name + " = " + to_text(value);
    return text.empty() ? "the empty config" : text;
  }

  void bad_config(const Case& one, Reach& reach, const Arch& arch, const Binding& binding, const std::optional<Config>& config,
                  const std::string& broken) {
    const Variant& variant = *reach.variant;
    if (!reach.has_config) {  // a space is looked at only as long as none was found to have a config
      if (!config_space(variant, arch, binding).empty())
        reach.has_config = true;
      else if (reach.empty_space.empty())
        reach.empty_space = in_case(one) + " on " + arch.full_name();
    }
    const std::string pointer = rule_pointer(variant, arch, binding);
    if (std::any_of(reach.heuristic_faults.begin(), reach.heuristic_faults.end(), [&](const Fault& each) { return each.where == pointer; }))
      return;
    const std::string what = broken.starts_with("not in the config space") ? broken : "'valid' has '" + broken + "'";
    reach.heuristic_faults.push_back({spec_.file, pointer,
                                      "the heuristic picks an invalid config for " + in_case(one) + " on " + arch.full_name() + ": " +
                                          (config ? text_of(*config) + "; " + what : broken)});
  }

  // Two images with one id would overwrite each other.
  void image(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config) {
    VariantScope scope(variant, arch, binding);
    scope.set_config(config);
    std::string values;
    for (std::size_t i = 0; i < variant.specialize.size(); ++i)
      values += (values.empty() ? "" : ", ") + variant.specialize[i].name + " = " + to_text(scope.specialisation(i));
    const std::string id = image_id(scope, config);
    const auto [first, fresh] = images_.emplace(id, values);
    if (!fresh && first->second != values)
      fault(variant.pointer + "/specialize",
            "two images have the id " + id + ": {" + first->second + "} and {" + values + "}; choose other names");
  }

  void conclude(Reach& reach) {
    const Variant& variant = *reach.variant;
    if (!reach.supported) {
      const std::string why = spec_.cases.empty() ? "the kernel has no cases" : reach.first_refusal;
      return fault(variant.pointer, "no case reaches the variant '" + variant.name + "': " + why + "; add a case for it");
    }
    if (!reach.has_config) {
      const std::string pointer = variant.pointer + (variant.valid.empty() ? "" : "/valid");
      return fault(pointer, "the config space is empty: no config is valid for any case, such as " + reach.empty_space);
    }
    for (const Fault& each : reach.heuristic_faults) fault(each.where, each.sentence);
  }

  const Spec& spec_;
  std::vector<Fault>& faults_;
  std::vector<Reach> reach_;
  std::set<std::string> seen_;                 // pointers with a fault
  std::map<std::string, std::string> images_;  // id, specialisation
  bool contract_broken_ = false;
};

}  // namespace

void check_cases(const Spec& spec, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults) {
  CaseCheck(spec, archs, faults).run();
}

}  // namespace ejk::spec
