// Enumerating images.
#include "generator/enumerate.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>

#include "generator/glob.hpp"
#include "generator/tuned.hpp"
#include "spec/check/suggest.hpp"
#include "spec/render/entry_points.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

// Everything that goes into a source beside the variant's text and the arch: equal signatures make equal sources.
std::string signature(const VariantScope& scope, const Config& config) {
  std::string text;
  for (std::size_t i = 0; i < scope.variant.specialize.size(); ++i) text += to_text(scope.specialisation(i)) + '\n';
  for (const auto& [name, value] : config) text += to_text(value) + '\n';
  for (const Launch& launch : scope.variant.launches) text += parameter_list(parameters_of(scope, launch.entry)) + '\n';
  return text;
}

class Enumerator {
 public:
  Enumerator(const Catalogue& catalogue, const Options& options)
      : catalogue_(catalogue), options_(options), select_(options.select), archs_(chosen_archs(catalogue, options.archs)) {}

  std::vector<ImagePlan> run() {
    for (const std::string& name : catalogue_.kernel_names())
      if (const auto spec = catalogue_.kernel(name)) kernel(spec);
    if (select_ == "tuned") add_winners();
    if (!faults_.empty()) throw SpecError(std::move(faults_));
    if (plans_.empty() && is_glob()) no_match();
    std::vector<ImagePlan> list;
    for (auto& [id, entry] : plans_) list.push_back(std::move(entry.plan));
    return list;
  }

 private:
  struct Entry {
    ImagePlan plan;
    std::string signature;
  };

  bool is_glob() const { return select_ != "tuned" && select_ != "heuristic" && select_ != "all"; }

  void fault(const Spec& spec, const std::string& pointer, std::string sentence) {
    Fault fault{spec.file, pointer, std::move(sentence)};
    if (seen_.insert(fault.text()).second) faults_.push_back(std::move(fault));
  }

  void kernel(const std::shared_ptr<const Spec>& spec) {
    for (const Case& c : spec->cases) {
      std::shared_ptr<const Binding> binding;
      try {
        binding = std::make_shared<Binding>(bind(*spec, facts_of(*spec, c)));
      } catch (const SpecError& e) {
        for (const Fault& each : e.faults()) fault(*spec, each.where, each.sentence);
        continue;
      } catch (const CallError& e) {
        fault(*spec, c.pointer, e.what());
        continue;
      }
      for (const Variant& variant : spec->variants) variant_of(spec, c, binding, variant);
    }
  }

  // Records that do not count any more are no fault: their calls have the heuristic's image.
  void add_winners() {
    std::vector<std::string> skipped;
    for (const auto& call : tuned_calls(catalogue_, options_, archs_, skipped)) {
      const auto& [candidate, config] = call.times.front().first;
      add({"", call.spec, candidate.variant, candidate.arch, call.binding, config, call.place});
    }
  }

  void variant_of(const std::shared_ptr<const Spec>& spec, const Case& c, const std::shared_ptr<const Binding>& binding,
                  const Variant& variant) {
    for (const Arch* arch : catalogue_.archs_of(variant)) {
      if (std::find(archs_.begin(), archs_.end(), arch) == archs_.end()) continue;
      try {
        if (refusal(variant, *arch, *binding)) continue;
        for (Config& config : configs(variant, *arch, *binding)) add({"", spec, &variant, arch, binding, std::move(config), c.name});
      } catch (const ExpressionError& e) {
        fault(*spec, variant.pointer, fmt::format("case {}, {}: {}", c.name, arch->full_name(), e.what()));
      }
    }
  }

  std::vector<Config> configs(const Variant& variant, const Arch& arch, const Binding& binding) const {
    if (select_ == "all" || is_glob()) return config_space(variant, arch, binding);
    if (auto config = valid_heuristic({&variant, &arch}, binding)) return {*std::move(config)};
    throw ExpressionError("no rule of the heuristic holds; end it with one that has no \"if\"", 0);
  }

  void add(ImagePlan plan) {
    VariantScope scope(*plan.variant, *plan.arch, *plan.binding);
    scope.set_config(plan.config);
    plan.id = image_id(scope, plan.config);
    if (is_glob() && !glob_matches(select_, plan.id)) {
      if (not_matched_.size() < 10000) not_matched_.push_back(plan.id);
      return;
    }
    std::string text = signature(scope, plan.config);
    const std::string id = plan.id;
    const auto [known, fresh] = plans_.try_emplace(id);
    if (fresh) {
      known->second = {std::move(plan), std::move(text)};
    } else if (known->second.plan.variant->name != plan.variant->name || known->second.plan.arch != plan.arch ||
               known->second.signature != text) {
      fault(*plan.spec, plan.variant->pointer,
            fmt::format("cases {} and {} make different sources of one image id, {}: name what differs in specialize",
                        known->second.plan.case_name, plan.case_name, id));
    }
  }

  [[noreturn]] void no_match() const {
    const std::string near = suggestion(select_, not_matched_);
    throw UsageError(
        fmt::format("--select '{}': no image id of the chosen archs matches{}; ejk-gen SPECS --select all --list shows them all", select_,
                    near.starts_with("; did you mean") ? near : ""));
  }

  const Catalogue& catalogue_;
  const Options& options_;
  const std::string& select_;
  std::vector<const Arch*> archs_;
  std::map<std::string, Entry> plans_;
  std::vector<std::string> not_matched_;
  std::vector<Fault> faults_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<const Arch*> chosen_archs(const Catalogue& catalogue, const std::vector<std::string>& names) {
  std::vector<const Arch*> chosen;
  std::vector<std::string> known;
  for (const auto& [full_name, arch] : catalogue.archs()) {
    known.push_back(full_name);
    if (names.empty() && arch.platform != "simt") chosen.push_back(&arch);
  }
  for (const std::string& name : names) {
    const std::size_t before = chosen.size();
    for (const auto& [full_name, arch] : catalogue.archs())
      if (full_name == name || arch.name == name) chosen.push_back(&arch);
    if (chosen.size() == before) throw UsageError(fmt::format("--arch: there is no arch '{}'; known: {}", name, listed(known)));
  }
  return chosen;
}

std::vector<ImagePlan> enumerate(const Catalogue& catalogue, const Options& options) { return Enumerator(catalogue, options).run(); }

std::vector<Image> render(const Catalogue& catalogue, const std::vector<ImagePlan>& plans) {
  std::vector<Image> images;
  std::vector<Fault> faults;
  std::set<std::string> seen;
  images.reserve(plans.size());
  for (const ImagePlan& plan : plans) {
    try {
      images.push_back(make_image(*plan.spec, *plan.variant, *plan.arch, *plan.binding, plan.config, catalogue.templates()));
    } catch (const SpecError& e) {
      for (const Fault& fault : e.faults())
        if (seen.insert(fault.text()).second) faults.push_back(fault);
    }
  }
  if (!faults.empty()) throw SpecError(std::move(faults));
  return images;
}

}  // namespace ejk::generator
