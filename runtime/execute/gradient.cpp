// The gradient's calls of a call of a spec's kernel: by the names of its tensors and attributes, or as the spec maps them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "execute/spec_kernel.hpp"
#include "spec/call/gradient.hpp"

namespace ejk {
namespace {

class GradientOf {
 public:
  GradientOf(const spec::Spec& spec, const spec::Binding& binding, const Invocation& invocation)
      : spec_(spec), binding_(binding), invocation_(invocation) {}

  // None if it would compute the gradient of an input that was not given, or takes a temporary that no call makes.
  std::optional<GradientCall> call(const spec::GradientStep& step, const KernelHandle& gradient) {
    GradientCall result;
    result.kernel = std::shared_ptr<const Kernel>(std::shared_ptr<void>(), gradient.kernel_interface());  // handles live for ever
    Invocation& call = result.invocation;
    call.kernel = gradient.spec->kernel;
    call.device = invocation_.device;
    call.stream = invocation_.stream;
    std::vector<const spec::TensorSpec*> made;  // temporaries
    for (const auto& tensor : gradient.spec->tensors) {
      const auto name = own_name(step, tensor.name);
      const bool temporary = step.mapped && spec::is_temporary(spec_, name);
      if (temporary && tensor.output) {
        made.push_back(&tensor);
        continue;
      }
      if (tensor.optional && !temporary && !asked_for(name)) continue;
      const auto view = view_of(name);
      if (view.given()) {
        call.tensors.emplace(tensor.name, view);
        result.names.emplace(tensor.name, name);
        if (!spec::differentiated(spec_, name).empty()) result.tensors.emplace(tensor.name, name);
      } else if ((tensor.output && step.mapped) || (temporary && !tensor.optional)) {
        return std::nullopt;
      } else if (!tensor.optional) {
        throw CodedError(ErrorCode::unsupported, fmt::format("{}: its tensor {} has no counterpart in this call of {}",
                                                             gradient.spec->kernel, tensor.name, spec_.kernel));
      }
    }
    if (step.mapped) call.attributes = spec::gradient_attributes(step, binding_);
    for (const auto& attribute : gradient.spec->attributes)
      if (const auto own = invocation_.attributes.find(attribute.name); !step.mapped && own != invocation_.attributes.end())
        call.attributes.insert(*own);
    add_temporaries(step, gradient, made, result);
    call = gradient.kernel->canonical(call);
    return result;
  }

 private:
  // By the shapes that the call's other tensors tell.
  void add_temporaries(const spec::GradientStep& step, const KernelHandle& gradient, const std::vector<const spec::TensorSpec*>& made,
                       GradientCall& result) {
    if (made.empty()) return;
    auto& call = result.invocation;
    const auto arguments = positional(gradient, call.tensors, call.attributes);
    const auto binding = spec::bind(*gradient.spec, facts_of(gradient, arguments.tensors, arguments.attributes));
    for (const auto* tensor : made) {
      const auto facts = shape_of_output(binding, *tensor);
      const auto name = own_name(step, tensor->name);
      temporaries_[name] = contiguous(facts.type, facts.shape);
      call.tensors.emplace(tensor->name, temporaries_[name]);
      result.names.emplace(tensor->name, name);
    }
  }

  // The tensor of this spec, or its gradient, that the gradient's kernel calls `name`; "": none.
  static std::string own_name(const spec::GradientStep& step, const std::string& name) {
    if (!step.mapped) return name;
    const auto found = std::find_if(step.tensors.begin(), step.tensors.end(), [&](const auto& each) { return each.first == name; });
    return found == step.tensors.end() ? "" : found->second;
  }

  // Every call has the tensor, or what it is the gradient of; or this one has.
  bool asked_for(const std::string& name) const {
    const auto has = [&](const std::string& own) {
      const auto* tensor = spec_.tensor(memory_of(own));
      return invocation_.tensors.contains(memory_of(own)) || (tensor && !tensor->optional);
    };
    return has(name) || has(spec::differentiated(spec_, name));
  }

  // The tensor that has an output's memory: of one that updates an input, the input.
  std::string memory_of(const std::string& name) const {
    const auto* output = spec_.output(name);
    return output ? output->tensor() : name;
  }

  // Of the call's own tensors as they are; of outputs that were not asked for, and of gradients, the shape alone.
  TensorView view_of(const std::string& name) const {
    if (const auto own = invocation_.tensors.find(memory_of(name)); own != invocation_.tensors.end()) return own->second;
    if (const auto made = temporaries_.find(name); made != temporaries_.end()) return made->second;
    const auto* tensor = spec_.tensor(name);
    if (tensor && tensor->output) return without_data(*tensor);
    const auto original = memory_of(spec::differentiated(spec_, name));
    if (original.empty()) return {};
    if (const auto own = invocation_.tensors.find(original); own != invocation_.tensors.end())
      return contiguous(own->second.type, {own->second.shape, static_cast<std::size_t>(own->second.rank)});
    const auto& of = *spec_.tensor(original);
    return of.output ? without_data(of) : TensorView();
  }

  TensorView without_data(const spec::TensorSpec& tensor) const {
    const auto facts = shape_of_output(binding_, tensor);
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
  std::map<std::string, TensorView> temporaries_;  // without data
};

// Without calls that only make temporaries which no call takes.
void drop_unused(std::vector<GradientCall>& calls) {
  std::set<std::string> taken;
  for (std::size_t i = calls.size(); i-- > 0;) {
    const auto& spec = *require_kernel(calls[i].invocation.kernel).spec;
    const auto is_output = [&](const auto& name) { return spec.tensor(name.first)->output; };
    const bool used = std::any_of(calls[i].names.begin(), calls[i].names.end(), [&](const auto& name) {
      return is_output(name) && (calls[i].tensors.contains(name.first) || taken.contains(name.second));
    });
    if (used)
      for (const auto& name : calls[i].names) {
        if (!is_output(name)) taken.insert(name.second);
      }
    else
      calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

Result<Gradient> SpecKernel::gradient(const Invocation& invocation) const {
  return guarded([&]() -> Result<Gradient> {
    const auto& spec = *handle_.spec;
    if (spec.gradient.empty()) return Error{ErrorCode::unsupported, handle_.name + " has no gradient"};
    const auto arguments = positional(handle_, invocation.tensors, invocation.attributes);
    const auto binding = spec::bind(spec, facts_of(handle_, arguments.tensors, arguments.attributes));
    GradientOf gradient_of(spec, binding, invocation);
    Gradient result;
    for (const auto& step : spec.gradient) {
      if (!step.kernel.empty()) {
        if (auto call = gradient_of.call(step, require_kernel(step.kernel))) result.calls.push_back(std::move(*call));
      } else if (invocation.tensors.contains(spec::differentiated(spec, step.tensor))) {
        result.equal.emplace(step.tensor, step.is);
      }
    }
    drop_unused(result.calls);
    return result;
  });
}

}  // namespace ejk
