// From recorded calls and labels to images.
#include "store/warm_plan.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "common/guard.hpp"
#include "ejk/label.hpp"
#include "record/placed_call.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

constexpr std::size_t longest_dump = std::size_t{8} << 30;

class WarmPlanner {
 public:
  WarmPlanner(WarmPlan& plan, const Machine* machine, bool to_build) : plan_(plan), machine_(machine), to_build_(to_build) {}

  void add(const RecordedInvocation& recorded, const std::string& name) {
    try {
      const PlacedCall call(recorded, machine_);
      auto image = call.image(call.select().config);
      WarmPlan::Found found{call.name(), call.machine().probe.fingerprint, image.id, image.hash};
      add(std::move(image));
      plan_.found.push_back(std::move(found));
      ++plan_.calls;
    } catch (...) {
      plan_.skipped.push_back({name, current_error().message});
    }
  }

 private:
  void add(spec::Image image) {
    const auto* arch = Library::instance().parts().catalogue.arch(image.arch);
    std::string why = fmt::format("this build of ejk has no {} backend", arch->platform);
    auto* backend = backend_of(arch->platform);
    if (!backend || (to_build_ && !backend->can_compile(*arch, why)))
      throw CodedError(ErrorCode::unsupported, fmt::format("{}: {}", image.id, why));
    if (seen_.insert(image.id + "-" + image.hash).second) plan_.items.push_back({std::move(image), arch});
  }

  WarmPlan& plan_;
  const Machine* machine_;
  const bool to_build_;
  std::set<std::string> seen_;
};

Recorded calls_of(const std::string& trace) {
  auto recorded = get_invocations(trace);
  if (!recorded) throw CodedError(ErrorCode::bad_input, recorded.error().message);
  return std::move(*recorded);
}

void plan_trace(const std::string& trace, WarmPlanner& planner, WarmPlan& plan) {
  const auto recorded = calls_of(trace);
  plan.faults = recorded.skipped;
  for (const auto& call : recorded.invocations) planner.add(call, fmt::format("{} on {}", call.invocation.kernel, call.invocation.device));
}

void plan_hlo(const std::string& hlo, const std::string& trace, WarmPlanner& planner, WarmPlan& plan) {
  std::string why;
  const auto text = store::read_file(hlo, longest_dump, why);
  if (!text) throw CodedError(ErrorCode::bad_input, fmt::format("{}: {}", hlo, why));
  if (!trace.empty()) plan.faults = calls_of(trace).skipped;
  std::vector<std::string> damaged;
  const auto labels = extract_labels_from_hlo_text(*text, &damaged);
  for (const auto& each : damaged) plan.faults.push_back(fmt::format("{}: a label that is cut off or garbled {}", hlo, each));
  const auto configs = labels_to_configs(labels, trace);
  if (!configs) throw CodedError(configs.error().code, configs.error().message);
  for (const auto& config : *configs) {
    if (config.invocation)
      planner.add(*config.invocation, config.label);
    else
      plan.skipped.push_back({config.label, config.why_not});
  }
}

}  // namespace

WarmPlan plan_to_warm(const std::string& trace, const std::string& hlo, const Machine* machine, bool to_build) {
  WarmPlan plan;
  WarmPlanner planner(plan, machine, to_build);
  if (hlo.empty())
    plan_trace(trace, planner, plan);
  else
    plan_hlo(hlo, trace, planner, plan);
  return plan;
}

}  // namespace ejk::tools
