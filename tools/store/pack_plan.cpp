// From recorded calls to demands on images.
#include "store/pack_plan.hpp"

#include <fmt/format.h>

#include "common/guard.hpp"
#include "ejk/record.hpp"
#include "ejk/tuning.hpp"
#include "record/placed_call.hpp"

namespace ejk::tools {
namespace {

// "mean_pooling x=f32[4, 16, 384] {"chunk_size":2} on cpu-avx512-2t"
std::string words_of(const Invocation& invocation) {
  std::string text = invocation.kernel;
  for (const auto& [name, view] : invocation.tensors)
    text += fmt::format(" {}={}[{}]", name, name_of(view.type), fmt::join(view.shape, view.shape + view.rank, ","));
  const auto attributes = to_json(invocation.attributes);
  if (!invocation.attributes.empty() && attributes) text += " " + *attributes;
  return text + " on " + invocation.device;
}

// The measured time of a config, if the record is of this very call.
class Times {
 public:
  Times(const PlacedCall& call, const std::shared_ptr<const TuningRecord>& record) {
    if (!record || record->key != call.canonical(call.invocation()).key()) return;
    times_ = {{record->config, record->median_us}, {record->baseline, record->baseline_us}};
    times_.insert(times_.end(), record->alternatives.begin(), record->alternatives.end());
  }
  bool any() const { return !times_.empty(); }
  std::optional<double> of(const Config& config) const {
    for (const auto& [measured, time] : times_)
      if (measured == config && time > 0) return time;
    return std::nullopt;
  }

 private:
  std::vector<std::pair<Config, double>> times_;
};

class PackPlanner {
 public:
  PackPlanner(PackPlan& plan, const Machine* machine) : plan_(plan), machine_(machine) {}

  void add(const RecordedInvocation& recorded) {
    const auto words = words_of(recorded.invocation);
    try {
      calls_.push_back({std::make_unique<PlacedCall>(recorded, machine_), {}, {}});
      auto& call = calls_.back();
      call.selection = call.placed->select();
      call.chosen = image_index(call.placed->image(call.selection.config));
      call.words = words;
      call.count = static_cast<double>(recorded.count);
    } catch (...) {
      if (!calls_.empty() && calls_.back().words.empty()) calls_.pop_back();
      plan_.skipped.push_back({words, current_error().message});
    }
  }

  void finish() {
    for (const auto& call : calls_) add_measured_alternatives(call);
    for (const auto& call : calls_) plan_.calls.push_back(packed(call));
  }

 private:
  struct Call {
    std::unique_ptr<PlacedCall> placed;
    Selection selection;
    std::string words;
    std::size_t chosen = 0;
    double count = 1;
  };

  std::size_t image_index(spec::Image image) {
    const auto known = index_.find(image.id);
    if (known != index_.end()) return known->second;
    const auto* arch = Library::instance().parts().catalogue.arch(image.arch);
    auto* backend = backend_of(arch->platform);
    auto found = backend ? found_in_stores(image, *backend) : std::nullopt;
    std::string why = fmt::format("this build of ejk has no {} backend", arch->platform);
    if (!found && (!backend || !backend->can_compile(*arch, why)))
      throw CodedError(ErrorCode::unsupported, fmt::format("{} is in no store, and cannot be built: {}", image.id, why));
    index_.emplace(image.id, plan_.images.size());
    plan_.images.push_back({{std::move(image), arch}, std::move(found)});
    return plan_.images.size() - 1;
  }

  static std::optional<store::Found> found_in_stores(const spec::Image& image, const Backend& backend) {
    const auto& places = Library::instance().parts().places;
    const auto ask = [&](const store::Store& place) -> std::optional<store::Found> {
      auto found = place.find(image, backend.source_extension(), backend.binary_extension());
      std::string().swap(found.bytes);  // a plan may have thousands
      return found.verdict == store::Verdict::hit ? std::optional(std::move(found)) : std::nullopt;
    };
    if (places.user)
      if (auto found = ask(*places.user)) return found;
    for (const auto& pack : places.packs)
      if (auto found = ask(pack)) return found;
    return std::nullopt;
  }

  // What was measured and is built already may be worth its place where several calls can share it.
  void add_measured_alternatives(const Call& call) {
    const Times times(*call.placed, call.selection.record);
    if (!times.any()) return;
    for (const auto& [config, id] : call.placed->fallbacks(call.selection.config)) {
      if (index_.contains(id) || !times.of(config)) continue;
      auto image = call.placed->image(config);
      if (const auto* backend = call.placed->machine().backend; found_in_stores(image, *backend)) image_index(std::move(image));
    }
  }

  PackedInvocation packed(const Call& call) {
    const Times times(*call.placed, call.selection.record);
    PackedInvocation result;
    result.demand.name = call.words;
    result.demand.weight = call.count;
    result.demand.choices.push_back({call.chosen, times.of(call.selection.config)});
    for (const auto& [config, id] : call.placed->fallbacks(call.selection.config))
      if (const auto known = index_.find(id); known != index_.end()) result.demand.choices.push_back({known->second, times.of(config)});
    result.tier = std::string(name_of(call.selection.tier));
    result.evidence = times.any() ? call.selection.detail : "no record is of this call";
    return result;
  }

  PackPlan& plan_;
  const Machine* machine_;
  std::vector<Call> calls_;
  std::map<std::string, std::size_t> index_;  // of images, by id
};

}  // namespace

PackPlan plan_pack(const std::string& trace, const Machine* machine) {
  const auto recorded = get_invocations(trace);
  if (!recorded) throw CodedError(recorded.error().code, recorded.error().message);
  PackPlan plan;
  plan.faults = recorded->skipped;
  PackPlanner planner(plan, machine);
  for (const auto& call : recorded->invocations) planner.add(call);
  planner.finish();
  return plan;
}

}  // namespace ejk::tools
