// Chooses by the least aligned call there is, so that the config serves all.
#include "batch/shared_config.hpp"

#include <fmt/format.h>

#include "execute/guard.hpp"
#include "execute/spec_kernel.hpp"
#include "record/placed_call.hpp"

namespace ejk {

NamedCall::NamedCall(const KernelHandle& kernel_, const std::map<std::string, TensorView>& tensors, const Values& attributes)
    : kernel(kernel_), arguments(positional(kernel_, tensors, attributes)) {}

Status NamedCall::run(Stream stream, const std::string& config) const {
  return call(&kernel, arguments.tensors, arguments.attributes, stream, config.empty() ? nullptr : config.c_str());
}

Config choose_config(const KernelHandle& kernel, const Machine& machine, const std::map<std::string, TensorView>& tensors,
                     const spec::Binding& binding, const Config* override_config) {
  const auto invocation = invocation_of(kernel, binding.facts, tensors, machine.probe.fingerprint, {});
  const auto selection = Library::instance().parts().chain->select(*kernel.kernel_interface(), invocation, override_config);
  if (!selection) throw CodedError(selection.error().code, selection.error().message);
  std::string reason;
  if (const auto full = complete(*kernel.spec, machine, binding, selection->config, reason))
    return public_config(full->candidate, full->config);
  if (override_config)
    throw CodedError(ErrorCode::bad_input,
                     fmt::format("{}: {} cannot serve every call: {}", kernel.name, to_json(*override_config), reason));
  RecordedInvocation least;
  least.invocation = invocation;
  for (const auto& [name, facts] : binding.facts.tensors) least.alignment.emplace(name, facts.alignment);
  return PlacedCall(least, &machine).select().config;
}

}  // namespace ejk
