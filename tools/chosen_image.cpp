// The image of a call, by the chain that a call would ask.
#include "chosen_image.hpp"

#include "execute/facts.hpp"
#include "execute/guard.hpp"

namespace ejk::tools {

Invocation invocation_of(const KernelHandle& kernel, const spec::CallFacts& facts, const Machine& machine) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : facts.tensors) {
    TensorView view(nullptr, tensor.type, tensor.shape);
    std::copy(tensor.strides.begin(), tensor.strides.end(), view.strides);
    view.device = {machine.backend->device_type(), machine.device};
    views.emplace(name, view);
  }
  return ejk::invocation_of(kernel, facts, views, machine.probe.fingerprint, {});
}

ChosenImage chosen_image(const KernelHandle& kernel, const Invocation& invocation, const Machine& machine) {
  const auto arguments = positional(kernel, invocation.tensors, invocation.attributes);
  ChosenImage chosen;
  chosen.binding = spec::bind(*kernel.spec, facts_of(kernel, arguments.tensors, arguments.attributes));
  const auto selection = Library::instance().parts().chain->select(*kernel.kernel, invocation);
  if (!selection) throw CodedError(selection.error().code, selection.error().message);
  std::string reason;
  const auto completed = complete(*kernel.spec, machine, chosen.binding, selection->config, reason);
  if (!completed) throw CodedError(ErrorCode::unsupported, kernel.name + ": " + reason);
  chosen.candidate = completed->candidate;
  chosen.config = completed->config;
  chosen.tier = std::string(name_of(selection->tier));
  chosen.detail = selection->detail;
  chosen.id = image_id_of(chosen.candidate, chosen.binding, chosen.config);
  return chosen;
}

spec::Image image_of(const KernelHandle& kernel, const Candidate& candidate, const spec::Binding& binding, const spec::Config& config) {
  const auto& catalogue = Library::instance().parts().catalogue;
  // As its file says, never as measured here: an image is the same text on every machine.
  const auto& arch = *catalogue.arch(candidate.arch->full_name());
  return spec::make_image(*kernel.spec, *candidate.variant, arch, binding, config, catalogue.templates());
}

std::string image_id_of(const Candidate& candidate, const spec::Binding& binding, const spec::Config& config) {
  const auto& arch = *Library::instance().parts().catalogue.arch(candidate.arch->full_name());
  spec::VariantScope scope(*candidate.variant, arch, binding);
  scope.set_config(config);
  return spec::image_id(scope, config);
}

}  // namespace ejk::tools
