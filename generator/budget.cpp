// Tuned calls and untuned cases as demands on images; the portfolio of spec/choose/portfolio.hpp chooses.
#include "generator/budget.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "generator/files.hpp"
#include "generator/tuned.hpp"
#include "spec/choose/portfolio.hpp"

namespace ejk::generator {
namespace {

using namespace spec;
using Candidates = std::vector<std::pair<const Variant*, const Arch*>>;

// Bytes of a binary for each byte of its source, over the images of mean_pooling and flash_attention.
double bytes_for_source(const std::string& platform) { return platform == "cpu" ? 1.13 : 2.14; }

// A tuned call, or an untuned case; what it gets if nothing is left out.
struct Call {
  TunedCall tuned;  // times: empty for a case that no record speaks of
  std::string case_name;
  PlacedConfig first;
};

// Of a call on an arch, what makes it the same call.
using CallKey = std::tuple<const Spec*, const Arch*, decltype(Binding::form), decltype(Binding::dims), decltype(Binding::types),
                           decltype(Binding::attributes)>;
CallKey key_of(const Spec& spec, const Arch* arch, const Binding& call) {
  return {&spec, arch, call.form, call.dims, call.types, call.attributes};
}

// Where the config stands in its variant's space, which has the last parameter fastest.
std::vector<std::ptrdiff_t> place_in_space(const Variant& variant, const Config& config) {
  std::vector<std::ptrdiff_t> place;
  for (const auto& parameter : variant.config)
    for (const auto& [name, value] : config)
      if (name == parameter.name)
        place.push_back(std::find(parameter.values.begin(), parameter.values.end(), value) - parameter.values.begin());
  return place;
}

Candidates candidates_of(const Catalogue& catalogue, const TunedCall& call) {
  std::vector<const Variant*> variants;
  for (const auto& variant : call.spec->variants) variants.push_back(&variant);
  std::stable_sort(variants.begin(), variants.end(), [](const auto* a, const auto* b) { return a->priority > b->priority; });
  const auto below = archs_below(catalogue, call.arch);
  Candidates candidates;
  for (const auto* variant : variants)
    for (const auto* arch : catalogue.archs_of(*variant))
      if (std::find(below.begin(), below.end(), arch) != below.end() && !refusal(*variant, *arch, *call.binding))
        candidates.emplace_back(variant, arch);
  return candidates;
}

class Selection {
 public:
  Selection(const Catalogue& catalogue, const Options& options, BudgetReport& report)
      : catalogue_(catalogue), options_(options), report_(report), archs_(chosen_archs(catalogue, options.archs)) {}

  std::vector<ImagePlan> run() {
    for (auto& tuned : tuned_calls(catalogue_, options_, archs_, report_.skipped)) {
      auto first = tuned.times.front().first;
      auto name = tuned.name;
      tuned_keys_.insert(key_of(*tuned.spec, tuned.arch, *tuned.binding));
      calls_.push_back({std::move(tuned), std::move(name), std::move(first)});
    }
    report_.tuned = calls_.size();
    for (const auto& name : catalogue_.kernel_names())
      if (const auto spec = catalogue_.kernel(name)) add_untuned(spec);
    for (const auto& call : calls_) add_image(call, call.first);
    for (const auto& call : calls_)
      for (const auto& [placed, us] : call.tuned.times)
        if (chosen(placed.arch)) add_image(call, placed);
    for (auto& [specialised, images] : kin_)
      std::sort(images.begin(), images.end(), [&](auto a, auto b) { return images_[a].place < images_[b].place; });
    measure_images();
    return kept(portfolio());
  }

 private:
  struct Entry {
    ImagePlan plan;
    std::vector<std::ptrdiff_t> place;  // of its config in the space
    std::int64_t bytes = 0;
    bool estimated = false;
  };

  bool chosen(const Arch* arch) const { return std::find(archs_.begin(), archs_.end(), arch) != archs_.end(); }

  void add_untuned(const std::shared_ptr<const Spec>& spec) {
    for (const auto& c : spec->cases) {
      const auto binding = std::make_shared<Binding>(bind(*spec, facts_of(*spec, c)));
      for (const auto* arch : archs_) {
        if (arch->tests_only()) continue;
        if (!tuned_keys_.contains(key_of(*spec, arch, *binding))) add_untuned(spec, c, binding, arch);
      }
    }
  }

  // What a device of that very arch chooses by the heuristic; an arch that only passes on what it extends has no demand of its own.
  void add_untuned(const std::shared_ptr<const Spec>& spec, const Case& c, const std::shared_ptr<const Binding>& binding,
                   const Arch* arch) {
    Call call{{fmt::format("{} case {} on {}", spec->kernel, c.name, arch->full_name()), "", spec, binding, arch, {}}, c.name, {}};
    for (const auto& [variant, candidate] : candidates_of(catalogue_, call.tuned)) {
      if (candidate != arch && !chosen(candidate)) continue;
      const auto config = heuristic_config(*variant, *candidate, *binding);
      if (!config) continue;
      call.first = {variant, candidate, *config};
      calls_.push_back(std::move(call));
      return;
    }
  }

  static std::string id_of(const Call& call, const PlacedConfig& placed) {
    VariantScope scope(*placed.variant, *placed.arch, *call.tuned.binding);
    scope.set_config(placed.config);
    return image_id(scope, placed.config);
  }

  // The image's id without its config.
  static std::string specialised_id(const Variant& variant, const Arch& arch, const Binding& binding) {
    return image_id(VariantScope(variant, arch, binding), {});
  }

  void add_image(const Call& call, const PlacedConfig& placed) {
    const auto& [variant, arch, config] = placed;
    if (invalid_clause(*variant, *arch, *call.tuned.binding, config)) return;
    auto id = id_of(call, placed);
    if (index_.contains(id)) return;
    index_.emplace(id, images_.size());
    kin_[specialised_id(*variant, *arch, *call.tuned.binding)].push_back(images_.size());
    images_.push_back(
        {{std::move(id), call.tuned.spec, variant, arch, call.tuned.binding, config, call.case_name}, place_in_space(*variant, config)});
  }

  // Of the images to choose from those that could serve the call: a space has many more configs.
  std::vector<Config> considered(const Variant& variant, const Arch& arch, const Binding& binding) const {
    std::vector<Config> configs;
    const auto kin = kin_.find(specialised_id(variant, arch, binding));
    if (kin == kin_.end()) return configs;
    for (const auto i : kin->second)
      if (!invalid_clause(variant, arch, binding, images_[i].plan.config)) configs.push_back(images_[i].plan.config);
    return configs;
  }

  void measure_images() {
    Renderer renderer(catalogue_);
    std::size_t done = 0;
    for (auto& entry : images_) {
      if (options_.progress) options_.progress(++done, images_.size());
      const auto image = renderer.render(entry.plan);
      if (!image) continue;
      const auto source = static_cast<std::int64_t>(image->source.size());
      const auto built = built_bytes(*image);
      entry.estimated = !built;
      entry.bytes =
          source + built.value_or(static_cast<std::int64_t>(static_cast<double>(source) * bytes_for_source(entry.plan.arch->platform)));
    }
    renderer.finish();
    report_.considered = images_.size();
  }

  // Of the binary and image.json, if --sizes names a store that has the image.
  std::optional<std::int64_t> built_bytes(const Image& image) const {
    std::string text;
    if (options_.sizes.empty() || !read_file(options_.sizes / image.kernel / (image.id + "-" + image.hash) / "image.json", text))
      return std::nullopt;
    const auto info = nlohmann::json::parse(text, nullptr, false);
    if (!info.is_object() || !info.contains("binary_bytes") || !info["binary_bytes"].is_number_integer()) return std::nullopt;
    return info["binary_bytes"].get<std::int64_t>() + static_cast<std::int64_t>(text.size());
  }

  // Times relative to the winner's, so that a call counts as much as any other.
  Demand demand_of(const Call& call) const {
    std::map<std::string, double> times;
    for (const auto& [placed, us] : call.tuned.times)
      if (const auto best = call.tuned.times.front().second; best > 0) times.emplace(id_of(call, placed), us / best);
    Demand demand{call.tuned.name, 1, {}};
    const auto add = [&](const PlacedConfig& placed) {
      const auto id = id_of(call, placed);
      const auto image = index_.find(id);
      if (image == index_.end()) return;
      const auto time = times.find(id);
      demand.choices.push_back({image->second, time == times.end() ? std::nullopt : std::optional(time->second)});
    };
    add(call.first);
    const auto configs_of = [&](const auto& variant, const auto& arch) { return considered(variant, arch, *call.tuned.binding); };
    for (const auto& placed : fallbacks(candidates_of(catalogue_, call.tuned), call.first, *call.tuned.binding, configs_of)) add(placed);
    return demand;
  }

  Portfolio portfolio() {
    for (const auto& call : calls_) demands_.push_back(demand_of(call));
    for (const auto& entry : images_) bytes_.push_back(entry.bytes);
    auto best = smallest_within(bytes_, demands_, options_.within);
    report_.method = fmt::format("smallest set within {:g}% of the best", options_.within * 100);
    if (options_.budget && best.bytes > *options_.budget) {
      report_.method = fmt::format("least regret in {} bytes; the smallest set within {:g}% of the best takes {}", *options_.budget,
                                   options_.within * 100, best.bytes);
      best = least_regret(bytes_, demands_, *options_.budget);
    }
    return best;
  }

  std::vector<ImagePlan> kept(const Portfolio& portfolio) {
    report_.bytes = portfolio.bytes;
    report_.exact = portfolio.exact;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const auto& served = portfolio.served[i];
      const auto id = [&](std::size_t choice) { return images_[demands_[i].choices[choice].image].plan.id; };
      report_.rows.push_back(
          {calls_[i].tuned.name, id(0), served.choice ? std::optional(id(*served.choice)) : std::nullopt, served.regret});
    }
    std::vector<ImagePlan> plans;
    for (const auto& [id, i] : index_) {
      if (!portfolio.kept[i]) continue;
      report_.estimated += images_[i].estimated;
      plans.push_back(images_[i].plan);
    }
    return plans;
  }

  const Catalogue& catalogue_;
  const Options& options_;
  BudgetReport& report_;
  const std::vector<const Arch*> archs_;
  std::vector<Call> calls_;
  std::vector<Entry> images_;
  std::set<CallKey> tuned_keys_;
  std::map<std::string, std::size_t> index_;             // of images, by id
  std::map<std::string, std::vector<std::size_t>> kin_;  // images that differ in their config alone, in the order of the space
  std::vector<std::int64_t> bytes_;
  std::vector<Demand> demands_;
};

}  // namespace

std::vector<ImagePlan> within_budget(const Catalogue& catalogue, const Options& options, BudgetReport& report) {
  return Selection(catalogue, options, report).run();
}

}  // namespace ejk::generator
