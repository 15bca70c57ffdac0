// Tuned calls and untuned cases as demands on images; the portfolio of spec/choose/portfolio.hpp chooses.
#include "generator/budget.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "generator/tree.hpp"
#include "generator/tuned.hpp"
#include "spec/choose/portfolio.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

// Bytes of a binary for each byte of its source, over the images of mean_pooling and flash_attention.
double bytes_for_source(const std::string& platform) { return platform == "cpu" ? 1.13 : 2.14; }

// A tuned call, or an untuned case; what it gets if nothing is left out.
struct Call {
  TunedCall tuned;  // times: empty for a case that no record speaks of
  std::string case_name;
  Completed first;
};

Decider decider_of(const Catalogue& catalogue, const TunedCall& call) {
  return {catalogue, *call.binding, archs_below(catalogue, call.arch)};
}

bool same_call(const Binding& a, const Binding& b) {
  return a.form == b.form && a.dims == b.dims && a.types == b.types && a.attributes == b.attributes;
}

class Selection {
 public:
  Selection(const Catalogue& catalogue, const Options& options, BudgetReport& report)
      : catalogue_(catalogue), options_(options), report_(report), archs_(chosen_archs(catalogue, options.archs)) {}

  std::vector<ImagePlan> run() {
    for (auto& tuned : tuned_calls(catalogue_, options_, archs_, report_.skipped)) {
      auto first = tuned.times.front().first;
      auto name = tuned.name;
      calls_.push_back({std::move(tuned), std::move(name), std::move(first)});
    }
    report_.tuned = calls_.size();
    for (const auto& name : catalogue_.kernel_names())
      if (const auto spec = catalogue_.kernel(name)) add_untuned(spec);
    for (const auto& call : calls_) add_image(call, call.first);
    for (const auto& call : calls_)
      for (const auto& [placed, us] : call.tuned.times)
        if (chosen(placed.candidate.arch)) add_image(call, placed);
    measure_images();
    return kept(portfolio());
  }

 private:
  struct Entry {
    ImagePlan plan;
    std::int64_t bytes = 0;
    bool estimated = false;
  };

  bool chosen(const Arch* arch) const { return std::find(archs_.begin(), archs_.end(), arch) != archs_.end(); }

  void add_untuned(const std::shared_ptr<const Spec>& spec) {
    for (const auto& c : spec->cases) {
      const auto binding = std::make_shared<Binding>(bind(*spec, facts_of(*spec, c)));
      for (const auto* arch : archs_) {
        if (arch->tests_only()) continue;
        const bool tuned = std::any_of(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(report_.tuned), [&](const auto& call) {
          return call.tuned.spec == spec && call.tuned.arch == arch && same_call(*call.tuned.binding, *binding);
        });
        if (!tuned) add_untuned(spec, c, binding, arch);
      }
    }
  }

  // What a device of that very arch chooses by the heuristic; an arch that only passes on what it extends has no demand of its own.
  void add_untuned(const std::shared_ptr<const Spec>& spec, const Case& c, const std::shared_ptr<const Binding>& binding,
                   const Arch* arch) {
    Call call{{fmt::format("{} case {} on {}", spec->kernel, c.name, arch->full_name()), "", spec, binding, arch, {}}, c.name, {}};
    auto first = decider_of(catalogue_, call.tuned).heuristic([&](const Candidate& each) { return chosen(each.arch); });
    if (!first) return;
    call.first = *std::move(first);
    calls_.push_back(std::move(call));
  }

  static std::string id_of(const Call& call, const Completed& placed) {
    VariantScope scope(*placed.candidate.variant, *placed.candidate.arch, *call.tuned.binding);
    scope.set_config(placed.config);
    return image_id(scope, placed.config);
  }

  void add_image(const Call& call, const Completed& placed) {
    const auto& [variant, arch] = placed.candidate;
    if (invalid_clause(*variant, *arch, *call.tuned.binding, placed.config)) return;
    auto id = id_of(call, placed);
    if (index_.contains(id)) return;
    index_.emplace(id, images_.size());
    images_.push_back({{std::move(id), call.tuned.spec, variant, arch, call.tuned.binding, placed.config, call.case_name}});
  }

  void measure_images() {
    std::vector<ImagePlan> plans;
    for (const auto& entry : images_) plans.push_back(entry.plan);
    const auto rendered = render(catalogue_, plans);
    for (std::size_t i = 0; i < images_.size(); ++i) {
      const auto source = static_cast<std::int64_t>(rendered[i].source.size());
      const auto built = built_bytes(rendered[i]);
      images_[i].estimated = !built;
      images_[i].bytes =
          source +
          built.value_or(static_cast<std::int64_t>(static_cast<double>(source) * bytes_for_source(images_[i].plan.arch->platform)));
    }
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
    const auto add = [&](const Completed& placed) {
      const auto id = id_of(call, placed);
      const auto image = index_.find(id);
      if (image == index_.end()) return;
      const auto time = times.find(id);
      demand.choices.push_back({image->second, time == times.end() ? std::nullopt : std::optional(time->second)});
    };
    add(call.first);
    for (const auto& placed : decider_of(catalogue_, call.tuned).fallbacks(call.first)) add(placed);
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
  std::map<std::string, std::size_t> index_;  // of images, by id
  std::vector<std::int64_t> bytes_;
  std::vector<Demand> demands_;
};

}  // namespace

std::vector<ImagePlan> within_budget(const Catalogue& catalogue, const Options& options, BudgetReport& report) {
  return Selection(catalogue, options, report).run();
}

}  // namespace ejk::generator
