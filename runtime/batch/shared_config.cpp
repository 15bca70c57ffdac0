// Chooses for the least aligned call there is, so that the config serves all.
#include "batch/shared_config.hpp"

#include <fmt/format.h>

#include "common/guard.hpp"
#include "execute/bound_call.hpp"

namespace ejk {

NamedCall::NamedCall(const KernelHandle& kernel_, const std::map<std::string, TensorView>& tensors, const Values& attributes)
    : kernel(kernel_), arguments(positional(kernel_, tensors, attributes)) {}

Status NamedCall::run(Stream stream, const std::string& config) const {
  return call(&kernel, arguments.tensors, arguments.attributes, stream, config.empty() ? nullptr : config.c_str());
}

Config choose_config(const KernelHandle& kernel, const Machine& machine, const std::map<std::string, TensorView>& tensors,
                     const std::shared_ptr<const spec::Binding>& binding, const Config* override_config) {
  const BoundCall call(kernel, machine, binding, invocation_of(kernel, binding->facts, tensors, machine.probe.fingerprint, {}));
  std::string reason;
  if (override_config && !call.complete(*override_config, reason))
    throw CodedError(ErrorCode::bad_input,
                     fmt::format("{}: {} cannot serve every call: {}", kernel.name, to_json(*override_config), reason));
  return public_config(call.completed(call.select(override_config).config));
}

}  // namespace ejk
