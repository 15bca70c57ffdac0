// The contract of Kernel, answered from a binding and a machine instead of tensors in memory.
#include "record/placed_call.hpp"

#include <fmt/format.h>

#include "describe/values.hpp"
#include "ejk/policy.hpp"
#include "execute/facts.hpp"
#include "spec/choose/fallbacks.hpp"
#include "spec/render/image.hpp"

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
  const auto& device = recorded.invocation.device;
  const auto platform = device.substr(0, device.find('-'));
  Machine machine;
  machine.backend = backend_of(platform);
  if (!machine.backend) refuse(fmt::format("device '{}' is not here, and this build of ejk has no {} backend", device, platform));
  machine.probe.fingerprint = device;
  machine.probe.archs = recorded.archs.empty() ? archs_of_fingerprint(device) : recorded.archs;
  for (const auto& [name, value] : recorded.properties) machine.probe.properties.emplace_back(name, value);
  for (const auto& name : machine.probe.archs) {
    const auto* arch = catalogue().arch(name);
    if (!arch) continue;  // of other specs than these
    machine.archs.push_back(*arch);
    for (const auto& [property, value] : recorded.properties) machine.archs.back().properties[property] = value;
  }
  if (machine.archs.empty())
    refuse(fmt::format("device '{}' is not here, and {} tells no arch of these specs; record the call again, or name a device that is here",
                       device, recorded.archs.empty() ? "its name" : fmt::format("[{}]", fmt::join(recorded.archs, ", "))));
  return machine;
}

Machine placed(const RecordedInvocation& recorded, const Machine* machine) {
  if (!machine) machine = machine_here(recorded.invocation.device);
  return machine ? *machine : machine_of(recorded);
}

spec::Binding bound(const KernelHandle& handle, const RecordedInvocation& recorded) {
  const auto arguments = positional(handle, recorded.invocation.tensors, recorded.invocation.attributes);
  auto facts = facts_of(handle, arguments.tensors, arguments.attributes);
  for (const auto& [name, alignment] : recorded.alignment) facts.tensors.at(name).alignment = alignment;
  return spec::bind(*handle.spec, std::move(facts));
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

PlacedCall::PlacedCall(const RecordedInvocation& recorded, const Machine* machine)
    : handle_(require_kernel(recorded.invocation.kernel)), machine_(placed(recorded, machine)), binding_(bound(handle_, recorded)) {
  invocation_ = renamed(recorded.invocation, machine_);
}

std::vector<Config> PlacedCall::config_space(const Invocation&) const {
  std::vector<Config> space;
  for (const auto& candidate : candidates_of(*handle_.spec, machine_, binding_).eligible)
    for (const auto& config : spec::config_space(*candidate.variant, *candidate.arch, binding_))
      space.push_back(public_config(candidate, config));
  return space;
}

Result<Config> PlacedCall::heuristic_cfg(const Invocation&) const {
  const auto candidates = candidates_of(*handle_.spec, machine_, binding_);
  for (const auto& candidate : candidates.eligible)
    if (const auto config = spec::heuristic_config(*candidate.variant, *candidate.arch, binding_)) return public_config(candidate, *config);
  std::string text = handle_.name + ": no variant takes this call";
  for (const auto& refusal : candidates.refusals) text += fmt::format("; {}: {}", refusal.variant, refusal.reason);
  return Error{ErrorCode::unsupported, text};
}

Status PlacedCall::run(const Invocation&, const Config&) const {
  return Error{ErrorCode::bad_input, handle_.name + ": a recorded call has no data to run on"};
}

std::string PlacedCall::invalid_reason(const Invocation&, const Config& config) const {
  std::string reason;
  return complete(*handle_.spec, machine_, binding_, config, reason) ? "" : reason;
}

Invocation PlacedCall::canonical(const Invocation& invocation) const { return handle_.kernel_interface()->canonical(invocation); }

Result<std::string> PlacedCall::source_hash(const Invocation&, const Config& config) const {
  return guarded([&]() -> Result<std::string> { return image(config).hash; });
}

std::optional<Nearness> PlacedCall::nearness(const std::string& key, const std::string& measured_key) const {
  return handle_.kernel_interface()->nearness(key, measured_key);
}

// With every tier's answer, because short answers are remembered by kernel object, and this one does not live long.
Selection PlacedCall::select() const {
  const policy_override no_tuning({.cache_miss_fallback = CacheMissFallback::heuristics});
  auto selection = Library::instance().parts().chain->select(*this, invocation_, nullptr, true);
  if (!selection) throw CodedError(selection.error().code, selection.error().message);
  return *selection;
}

Completed PlacedCall::completed(const Config& config) const {
  std::string reason;
  auto full = complete(*handle_.spec, machine_, binding_, config, reason);
  if (!full) refuse(fmt::format("{}: {} cannot serve this call: {}", handle_.name, to_json(config), reason));
  return std::move(*full);
}

std::vector<PlacedCall::Fallback> PlacedCall::fallbacks(const Config& chosen) const {
  const auto full = completed(chosen);
  std::vector<std::pair<const spec::Variant*, const spec::Arch*>> candidates;
  for (const auto& [variant, arch] : candidates_of(*handle_.spec, machine_, binding_).eligible) candidates.emplace_back(variant, arch);
  std::vector<Fallback> order;
  for (const auto& [variant, arch, config] :
       spec::fallbacks(candidates, {full.candidate.variant, full.candidate.arch, full.config}, binding_)) {
    spec::VariantScope scope(*variant, *catalogue().arch(arch->full_name()), binding_);
    scope.set_config(config);
    order.push_back({public_config({variant, arch}, config), spec::image_id(scope, config)});
  }
  return order;
}

spec::Image PlacedCall::image(const Config& config) const {
  const auto full = completed(config);
  // With the arch as its file says, as in a call: an image is the same text on every machine.
  const auto& written = *catalogue().arch(full.candidate.arch->full_name());
  return spec::make_image(*handle_.spec, *full.candidate.variant, written, binding_, full.config, catalogue().templates());
}

}  // namespace ejk
