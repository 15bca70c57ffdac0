// The gradient's call of a call of a spec's kernel, by the names of its tensors and attributes.
#include <fmt/format.h>

#include "execute/facts.hpp"
#include "execute/guard.hpp"
#include "execute/spec_kernel.hpp"

namespace ejk {
namespace {

// "dx", "d_x", "grad_x", "x_grad" → "x"; "" for other names.
std::string differentiated(const std::string& name, const spec::Spec& spec) {
  for (const std::string prefix : {"grad_", "d_", "d"})
    if (name.starts_with(prefix) && spec.tensor(name.substr(prefix.size()))) return name.substr(prefix.size());
  constexpr std::string_view suffix = "_grad";
  if (name.ends_with(suffix) && spec.tensor(name.substr(0, name.size() - suffix.size())))
    return name.substr(0, name.size() - suffix.size());
  return {};
}

class GradientOf {
 public:
  GradientOf(const spec::Spec& spec, const spec::Binding& binding, const Invocation& invocation)
      : spec_(spec), binding_(binding), invocation_(invocation) {}

  Invocation call(const spec::Spec& gradient) const {
    Invocation result;
    result.kernel = gradient.kernel;
    result.device = invocation_.device;
    result.stream = invocation_.stream;
    for (const auto& tensor : gradient.tensors) {
      const auto view = view_of(tensor.name);
      if (view.given())
        result.tensors.emplace(tensor.name, view);
      else if (!tensor.optional)
        throw CodedError(ErrorCode::unsupported, fmt::format("{}: its tensor {} has no counterpart in this call of {}", gradient.kernel,
                                                             tensor.name, spec_.kernel));
    }
    for (const auto& attribute : gradient.attributes)
      if (const auto own = invocation_.attributes.find(attribute.name); own != invocation_.attributes.end()) result.attributes.insert(*own);
    return result;
  }

 private:
  // Of the call's own tensors as they are; of outputs that were not asked for, and of gradients, the shape alone.
  TensorView view_of(const std::string& name) const {
    if (const auto own = invocation_.tensors.find(name); own != invocation_.tensors.end()) return own->second;
    const auto* tensor = spec_.tensor(name);
    if (tensor && tensor->output) return without_data(*tensor);
    const auto original = differentiated(name, spec_);
    if (tensor || original.empty()) return {};
    if (const auto own = invocation_.tensors.find(original); own != invocation_.tensors.end())
      return contiguous(own->second.type, {own->second.shape, static_cast<std::size_t>(own->second.rank)});
    const auto& of = *spec_.tensor(original);
    return of.output ? without_data(of) : TensorView();
  }

  TensorView without_data(const spec::TensorSpec& tensor) const {
    const auto facts = spec::output_facts(binding_, tensor);
    return contiguous(facts.type, facts.shape);
  }

  TensorView contiguous(DType type, std::span<const std::int64_t> shape) const {
    TensorView view(nullptr, type, shape);
    if (!invocation_.tensors.empty()) view.device = invocation_.tensors.begin()->second.device;
    return view;
  }

  const spec::Spec& spec_;
  const spec::Binding& binding_;
  const Invocation& invocation_;
};

}  // namespace

Result<GradientCall> SpecKernel::gradient(const Invocation& invocation) const {
  return guarded([&]() -> Result<GradientCall> {
    if (handle_.spec->gradient.empty()) return Error{ErrorCode::unsupported, handle_.name + " has no gradient"};
    const auto& gradient = require_kernel(handle_.spec->gradient);
    const auto arguments = positional(handle_, invocation.tensors, invocation.attributes);
    const auto binding = spec::bind(*handle_.spec, facts_of(handle_, arguments.tensors, arguments.attributes));
    GradientCall result;
    result.kernel = std::shared_ptr<const Kernel>(std::shared_ptr<void>(), gradient.kernel_interface());  // handles live for ever
    result.invocation = gradient.kernel->canonical(GradientOf(*handle_.spec, binding, invocation).call(*gradient.spec));
    return result;
  });
}

}  // namespace ejk
