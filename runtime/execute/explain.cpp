// explain: the plan of a call, told.
#include "execute/explain.hpp"

#include "common/guard.hpp"
#include "ejk/library.hpp"
#include "ejk/tuning.hpp"
#include "execute/facts.hpp"
#include "execute/plan.hpp"

namespace ejk {
namespace {

using nlohmann::ordered_json;

ordered_json value_json(const Value& value) {
  return std::visit([](const auto& v) { return ordered_json(v); }, value);
}

template <class Map>
ordered_json map_json(const Map& map) {
  auto object = ordered_json::object();
  for (const auto& [name, value] : map) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Value>)
      object[name] = value_json(value);
    else
      object[name] = value;
  }
  return object;
}

ordered_json variants_json(const Plan& plan) {
  const auto arch = plan.resolved.candidate.arch->full_name();
  auto& decider = plan.call->decider();
  auto list = ordered_json::array();
  for (const auto& candidate : decider.eligible(arch)) {
    const bool chosen = candidate == plan.resolved.candidate;
    list.push_back({{"name", candidate.variant->name},
                    {"arch", candidate.arch->full_name()},
                    {"state", chosen ? "chosen" : "eligible"},
                    {"reason", chosen ? plan.resolved.selection.detail : "supports the call; another was chosen"}});
  }
  for (const auto& refusal : decider.refusals(arch))
    list.push_back({{"name", refusal.variant}, {"arch", nullptr}, {"state", "refused"}, {"reason", refusal.reason}});
  return list;
}

ordered_json tiers_json(const Selection& selection) {
  auto list = ordered_json::array();
  for (const auto& answer : selection.trail)
    list.push_back(
        {{"tier", std::string(name_of(answer.tier))},
         {"answer", answer.config ? (answer.tier == selection.tier ? "chosen" : "valid, but a tier before it answered") : "none"},
         {"detail", answer.detail},
         {"config", answer.config ? ordered_json::parse(to_json(*answer.config)) : ordered_json(nullptr)}});
  return list;
}

// What stands behind the config: the measurement of the tier that was chosen, else of the first one that has any.
ordered_json evidence_json(const Selection& selection) {
  const TierAnswer* shown = nullptr;
  for (const auto& answer : selection.trail)
    if (answer.record && (!shown || answer.tier == selection.tier)) shown = &answer;
  if (!shown) return nullptr;
  const auto& record = *shown->record;
  auto alternatives = ordered_json::array();
  for (const auto& [config, median] : record.alternatives)
    alternatives.push_back({{"config", ordered_json::parse(to_json(config))}, {"median_us", median}});
  return {{"of", std::string(name_of(shown->tier))},
          {"config", ordered_json::parse(to_json(record.config))},
          {"median_us", record.median_us},
          {"noise", record.noise},
          {"samples", record.samples_us.size()},
          {"baseline", ordered_json::parse(to_json(record.baseline))},
          {"baseline_us", record.baseline_us},
          {"gain",
           record.baseline_us > 0 && record.median_us > 0 ? ordered_json(record.baseline_us / record.median_us) : ordered_json(nullptr)},
          {"checked_against", record.checked_against},
          {"residual", record.residual},
          {"measured", record.measured},
          {"rejected", record.rejected},
          {"machine", record.machine},
          {"version", record.version},
          {"source", record.source},
          {"code", record.code},
          {"alternatives", alternatives}};
}

// Other measurements of this call and of calls near it.
ordered_json near_json(const BoundCall& call, const Invocation& invocation) {
  static constexpr std::size_t shown = 5;
  auto list = ordered_json::array();
  for (const auto& near : Library::instance().parts().chain->persistent().near(call, invocation, invocation.key(), shown))
    list.push_back({{"where", near.where},
                    {"measured", near.measured},
                    {"config", ordered_json::parse(to_json(near.record->config))},
                    {"median_us", near.record->median_us},
                    {"fault", near.fault}});
  return list;
}

ordered_json stages_json(const Stages& stages) {
  auto object = ordered_json::object();
  for (const auto& [name, seconds] : stages) object[name] = seconds;
  return object;
}

ordered_json image_json(const Resolved& resolved) {
  static constexpr const char* origins[] = {"user cache", "pack", "compiled just in time"};
  return {{"id", resolved.image.id},
          {"hash", resolved.image.hash},
          {"origin", origins[static_cast<int>(resolved.obtained.origin)]},
          {"from", resolved.obtained.from},
          {"seconds", resolved.obtained.seconds},
          {"stages", stages_json(resolved.obtained.stages)},
          {"assembled", stages_json(resolved.obtained.assembled)},
          {"fallback", resolved.fallback},
          {"stands_in_for", resolved.awaited ? ordered_json(resolved.awaited_image) : ordered_json(nullptr)},
          {"tried", resolved.tried}};
}

ordered_json launches_json(const Plan& plan) {
  auto list = ordered_json::array();
  const auto geometry = spec::geometry_of(*plan.resolved.candidate.variant, plan.resolved.arch, *plan.binding, plan.resolved.config);
  for (const auto& launch : geometry.launches) {
    list.push_back(
        {{"entry", launch.launch->entry}, {"grid", launch.grid}, {"block", launch.block}, {"shared_bytes", launch.shared_bytes}});
    if (launch.launch->repeat) list.back()["repeat"] = launch.repeat;
  }
  return list;
}

// A cost that cannot be evaluated for this form is left out rather than made up.
ordered_json cost_json(const spec::Spec& spec, const spec::Binding& binding) {
  auto cost = ordered_json::object();
  const auto add = [&](const char* name, const spec::Expression& expression) {
    try {
      if (expression) cost[name] = expression.floating(binding);
    } catch (const spec::ExpressionError&) {
      cost[name] = nullptr;
    }
  };
  add("flops", spec.flops);
  add("bytes", spec.bytes);
  return cost;
}

}  // namespace

ordered_json explain(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
                     const Config* config) {
  const auto plan = make_plan(kernel, tensors, attributes, {}, config, nullptr, PlanFor::explanation);
  const auto& call = *plan->call;
  ordered_json result;
  result["kernel"] = kernel.name;
  result["form"] = plan->binding->form;
  result["dims"] = map_json(plan->binding->dims);
  result["types"] = map_json(plan->binding->types);
  result["attributes"] = map_json(plan->binding->attributes);
  result["device"] = call.machine().probe.fingerprint;
  const auto invocation = call.canonical(call.invocation());  // as the chain keys it
  result["key"] = ordered_json::parse(invocation.key());
  result["variants"] = variants_json(*plan);
  result["tiers"] = tiers_json(plan->resolved.selection);
  result["config"] = ordered_json::parse(to_json(public_config({plan->resolved.candidate, plan->resolved.config})));
  result["evidence"] = evidence_json(plan->resolved.selection);
  result["near"] = near_json(call, invocation);
  result["image"] = image_json(plan->resolved);
  result["workspace_bytes"] = plan->workspace_bytes;
  result["launches"] = launches_json(*plan);
  result["cost"] = cost_json(*kernel.spec, *plan->binding);
  return result;
}

Result<std::string> explain(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                            const std::map<std::string, Value>& attributes, const Config* config) {
  return guarded([&]() -> Result<std::string> {
    const auto& handle = require_kernel(kernel);
    const auto arguments = positional(handle, tensors, attributes);
    return explain(handle, arguments.tensors, arguments.attributes, config).dump(2);
  });
}

}  // namespace ejk
