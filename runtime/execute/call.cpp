// The packed call: the way in for typed headers, the C API and calls by name.
#include "ejk/call.hpp"

#include <fmt/format.h>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "execute/library_state.hpp"
#include "execute/plan.hpp"
#include "execute/recording_hook.hpp"

namespace ejk {
namespace {

[[gnu::noinline]] Error no_kernel() {
  return guarded([]() -> Status {
           const auto names = Library::instance().parts().catalogue.kernel_names();
           return Error{ErrorCode::bad_input, fmt::format("no such kernel; the stores have {}", fmt::join(names, ", "))};
         })
      .error();
}

// Output `spec` of the call, freshly allocated; empty if given, or optional and not wanted.
Tensor allocate(const KernelHandle& kernel, const Machine& machine, const spec::Binding& binding, const spec::TensorSpec& output,
                bool wanted) {
  if (binding.facts.tensors.contains(output.name) || (output.optional && !wanted)) return {};
  if (const Device device{machine.backend->device_type(), machine.device}; device.type != DeviceType::cpu)
    throw CodedError(ErrorCode::bad_input, fmt::format("{}: the tensors are on {}, where ejk allocates no outputs: give {}, {}",
                                                       kernel.name, name_of(device), output.name, expected_output(binding, output)));
  const auto facts = shape_of_output(binding, output);
  try {
    return Tensor(facts.type, facts.shape);
  } catch (const std::bad_alloc&) {
    throw CodedError(ErrorCode::internal, fmt::format("{}: no memory for output {}, {} of shape [{}]", kernel.name, output.name,
                                                      name_of(facts.type), fmt::join(facts.shape, ", ")));
  }
}

Result<std::vector<Tensor>> allocate_and_call(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::uint64_t wanted,
                                              std::span<const AttributeValue> attributes, Stream stream, const char* config) {
  const auto binding = spec::bind(*kernel.spec, facts_of(kernel, tensors, attributes));
  const auto& machine = machine_of(kernel, tensors);
  spec::check_live_requirements(binding);  // an output's shape may depend on data (offsets): judge it before reading
  std::vector<Tensor> outputs;
  std::vector<const TensorView*> all(tensors.begin(), tensors.end());
  for (std::size_t i = kernel.inputs; i < all.size(); ++i)
    outputs.push_back(allocate(kernel, machine, binding, kernel.spec->tensors[i], wanted >> (i - kernel.inputs) & 1));
  for (std::size_t i = kernel.inputs; i < all.size(); ++i)
    if (outputs[i - kernel.inputs].view().given()) all[i] = &outputs[i - kernel.inputs].view();
  if (auto status = call(&kernel, all, attributes, stream, config); !status) return status.error();
  return outputs;
}

inline const Plan& plan_of(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                           std::span<const AttributeValue> attributes, Stream stream, const char* config) {
  PlanKey key;
  if (!pack_key(key, kernel, tensors, attributes, config)) {
    facts_of(kernel, tensors, attributes);  // throws: wrong counts
    throw CodedError(ErrorCode::internal, kernel.name + ": the call has more tensors than a plan key holds");
  }
  return find_plan(key, kernel, tensors, attributes, stream, config);
}

}  // namespace

const KernelHandle* find_kernel(const char* name) noexcept {
  try {
    return Library::instance().kernel(name);
  } catch (...) {
    return nullptr;
  }
}

Status call(const KernelHandle* kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
            Stream stream, const char* config, Workspace workspace) noexcept {
  if (!kernel) return no_kernel();
  try {
    const auto& plan = plan_of(*kernel, tensors, attributes, stream, config);
    if (open_recording) [[unlikely]]
      record_call(*kernel, tensors, attributes, stream);
    plan.run(*kernel, tensors, attributes, stream, workspace);
    return {};
  } catch (...) {
    return current_error();
  }
}

Status make_ready(const KernelHandle* kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
                  Stream stream, const char* config) noexcept {
  if (!kernel) return no_kernel();
  return guarded([&]() -> Status {
    plan_of(*kernel, tensors, attributes, stream, config);
    return {};
  });
}

Result<std::vector<Tensor>> call_allocating(const KernelHandle* kernel, std::span<const TensorView* const> tensors,
                                            std::uint64_t wanted_outputs, std::span<const AttributeValue> attributes, Stream stream,
                                            const char* config) noexcept {
  if (!kernel) return no_kernel();
  return guarded([&] { return allocate_and_call(*kernel, tensors, wanted_outputs, attributes, stream, config); });
}

}  // namespace ejk
