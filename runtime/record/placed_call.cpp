// Bound from what was recorded, on a machine that is here or known by what was recorded of it.
#include "record/placed_call.hpp"

#include <fmt/format.h>

#include "describe/values.hpp"
#include "ejk/policy.hpp"
#include "execute/arch_here.hpp"
#include "execute/facts.hpp"

namespace ejk {
namespace {

const spec::Catalogue& catalogue() { return Library::instance().parts().catalogue; }

// "cpu-avx512-2t" names its arch, and an arch what it extends; GPUs' fingerprints name a product.
std::vector<std::string> archs_of_fingerprint(const std::string& fingerprint) {
  std::vector<std::string> names;
  if (!fingerprint.starts_with("cpu-")) return names;
  auto name = fingerprint.substr(4, fingerprint.rfind('-') - 4);
  for (const auto* arch = catalogue().arch("cpu:" + name); arch; arch = catalogue().arch("cpu:" + name)) {
    names.push_back(arch->full_name());
    name = arch->extends;
    if (name.empty()) break;
  }
  return names;
}

// A machine that is not here, as far as the recorded call tells.
Machine machine_of(const RecordedInvocation& recorded) {
  const auto& environment = Library::instance().parts().environment;
  const auto& device = recorded.invocation.device;
  const auto platform = device.substr(0, device.find('-'));
  Machine machine;
  machine.backend = backend_of(platform);
  if (!machine.backend) refuse(fmt::format("device '{}' is not here, and this build of ejk has no {} backend", device, platform));
  machine.probe.fingerprint = device;
  machine.probe.archs = recorded.archs.empty() ? archs_of_fingerprint(device) : recorded.archs;
  for (const auto& [name, value] : recorded.properties) machine.probe.properties.emplace_back(name, value);
  for (const auto& name : machine.probe.archs)
    if (const auto* arch = catalogue().arch(name))
      machine.archs.push_back(arch_here(*arch, machine.probe, environment));  // else of other specs
  if (machine.archs.empty())
    refuse(fmt::format("device '{}' is not here, and {} tells no arch of these specs; record the call again, or name a device that is here",
                       device, recorded.archs.empty() ? "its name" : fmt::format("[{}]", fmt::join(recorded.archs, ", "))));
  return machine;
}

std::shared_ptr<const Machine> placed(const RecordedInvocation& recorded, const Machine* machine) {
  require_kernel(recorded.invocation.kernel);  // that there is none is told before what is not known of a machine
  if (!machine) machine = machine_here(recorded.invocation.device);
  if (!machine) return std::make_shared<const Machine>(machine_of(recorded));
  return {std::shared_ptr<void>(), machine};  // the library's
}

std::shared_ptr<const spec::Binding> bound(const KernelHandle& handle, const RecordedInvocation& recorded) {
  const auto arguments = positional(handle, recorded.invocation.tensors, recorded.invocation.attributes);
  auto facts = facts_of(handle, arguments.tensors, arguments.attributes);
  for (const auto& [name, alignment] : recorded.alignment) facts.tensors.at(name).alignment = alignment;
  return std::make_shared<spec::Binding>(spec::bind(*handle.spec, std::move(facts)));
}

Invocation renamed(Invocation invocation, const Machine& machine) {
  invocation.device = machine.probe.fingerprint;
  return invocation;
}

}  // namespace

Invocation canonical(const Invocation& invocation) {
  const auto* handle = find_kernel(invocation.kernel.c_str());
  return handle ? handle->kernel_interface()->canonical(invocation) : invocation;
}

const Machine* machine_here(const std::string& fingerprint) {
  for (const auto& machine : Library::instance().parts().machines)
    if (machine.probe.available && machine.probe.fingerprint == fingerprint) return &machine;
  return nullptr;
}

PlacedCall::PlacedCall(const RecordedInvocation& recorded, const Machine* machine) : PlacedCall(recorded, placed(recorded, machine)) {}

PlacedCall::PlacedCall(const RecordedInvocation& recorded, std::shared_ptr<const Machine> machine)
    : BoundCall(require_kernel(recorded.invocation.kernel), machine, bound(require_kernel(recorded.invocation.kernel), recorded),
                renamed(recorded.invocation, *machine)) {}

Status PlacedCall::run(const Invocation&, const Config&) const {
  return Error{ErrorCode::bad_input, name() + ": a recorded call has no data to run on"};
}

// The process's policy but for tuning: where a call would be measured now, and that failed, it would get the heuristic.
Selection PlacedCall::select() const {
  auto policy = Library::instance().parts().chain->policy();
  if (policy.cache_miss_fallback == CacheMissFallback::autotune) policy.cache_miss_fallback = CacheMissFallback::heuristics;
  const policy_override no_tuning(policy);
  return BoundCall::select();
}

std::vector<PlacedCall::Fallback> PlacedCall::fallbacks(const Config& chosen) const {
  std::vector<Fallback> order;
  for (const auto& [candidate, config] : decider().fallbacks(completed(chosen))) {
    spec::VariantScope scope(*candidate.variant, *candidate.arch, *binding());
    scope.set_config(config);
    order.push_back({public_config({candidate, config}), spec::image_id(scope, config)});
  }
  return order;
}

}  // namespace ejk
