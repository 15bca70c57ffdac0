// The Kernel interface of a spec: binds, then asks the bound call.
#include "execute/spec_kernel.hpp"

#include <fmt/format.h>

#include "common/guard.hpp"
#include "execute/bound_call.hpp"
#include "execute/facts.hpp"
#include "spec/call/tolerance.hpp"
#include "spec/expression/no_names.hpp"

namespace ejk {
namespace {

BoundCall bind_call(const KernelHandle& handle, const Invocation& invocation) {
  const auto arguments = positional(handle, invocation.tensors, invocation.attributes);
  auto binding = std::make_shared<spec::Binding>(spec::bind(*handle.spec, facts_of(handle, arguments.tensors, arguments.attributes)));
  return {handle, machine_of(handle, arguments.tensors), std::move(binding), invocation};
}

// Of memory that the call has as an input.
bool is_other_name(const spec::Spec& spec, const std::string& name) {
  const auto* output = spec.output(name);
  return output && !output->updates.empty() && output->updates != name;
}

// Whether the attribute chooses the type of a tensor that is given, which says the same.
bool told_by_a_tensor(const spec::Spec& spec, const spec::Attribute& attribute, const Invocation& call) {
  return attribute.type == spec::AttributeType::string &&
         std::any_of(spec.tensors.begin(), spec.tensors.end(), [&](const spec::TensorSpec& tensor) {
           return tensor.type == attribute.fallback.text() && call.tensors.contains(tensor.name);
         });
}

// Of an attribute whose default depends on nothing.
Value default_of(const spec::Attribute& attribute) {
  auto value = attribute.fallback.evaluate(spec::NoNames());
  if (const auto* number = std::get_if<std::int64_t>(&value); number && attribute.type == spec::AttributeType::floating)
    return static_cast<double>(*number);
  return value;
}

}  // namespace

std::unique_ptr<const BoundKernel> SpecKernel::bound(const Invocation& invocation) const {
  return std::make_unique<BoundCall>(bind_call(handle_, invocation));
}

std::vector<Config> SpecKernel::config_space(const Invocation& invocation) const {
  try {
    return bind_call(handle_, invocation).config_space(invocation);
  } catch (const std::exception&) {
    return {};  // an illegal call has no configs; run() says what is wrong with it
  }
}

Result<Config> SpecKernel::heuristic_cfg(const Invocation& invocation) const {
  return guarded([&] { return bind_call(handle_, invocation).heuristic_cfg(invocation); });
}

double SpecKernel::tolerance(const Invocation& invocation, const std::string& tensor, DType type) const {
  if (!is_floating(type) || !handle_.spec->tolerance.contains(std::string(name_of(type)))) return 0;  // an input, or of integers
  const auto arguments = positional(handle_, invocation.tensors, invocation.attributes);
  return spec::tolerance_of(spec::bind(*handle_.spec, facts_of(handle_, arguments.tensors, arguments.attributes)), tensor, type);
}

Invocation SpecKernel::canonical(const Invocation& invocation) const {
  auto result = invocation;
  std::erase_if(result.tensors, [](const auto& entry) { return !entry.second.given(); });
  std::erase_if(result.tensors, [&](const auto& entry) { return is_other_name(*handle_.spec, entry.first); });
  result.varying.clear();
  for (const auto& attribute : handle_.spec->attributes) {
    if (attribute.varies) result.varying.push_back(attribute.name);
    const auto given = result.attributes.find(attribute.name);
    if (given == result.attributes.end()) continue;
    if (const auto* number = std::get_if<std::int64_t>(&given->second); number && attribute.type == spec::AttributeType::floating)
      given->second = static_cast<double>(*number);
    const auto& fallback = attribute.fallback;
    const bool fixed = fallback && fallback.names().empty() && fallback.subjects().empty();
    if ((fixed && given->second == default_of(attribute)) || told_by_a_tensor(*handle_.spec, attribute, result))
      result.attributes.erase(given);
  }
  if (result.device.empty()) {
    try {
      result.device = machine_of(handle_, positional(handle_, result.tensors, {}).tensors).probe.fingerprint;
    } catch (const std::exception&) {  // an illegal call has no device; run() says what is wrong with it
    }
  }
  return result;
}

Result<std::string> SpecKernel::source_hash(const Invocation& invocation, const Config& config) const {
  return guarded([&] { return bind_call(handle_, invocation).source_hash(invocation, config); });
}

Result<std::string> SpecKernel::code_hash(const Invocation& invocation, const Config& config) const {
  return guarded([&] { return bind_call(handle_, invocation).code_hash(invocation, config); });
}

Status SpecKernel::run(const Invocation& invocation, const Config& config) const {
  return guarded([&]() -> Status {
    const auto arguments = positional(handle_, invocation.tensors, invocation.attributes);
    const auto text = to_json(config);
    return call(&handle_, arguments.tensors, arguments.attributes, invocation.stream, text.c_str());
  });
}

std::string SpecKernel::invalid_reason(const Invocation& invocation, const Config& config) const {
  return bind_call(handle_, invocation).invalid_reason(invocation, config);
}

}  // namespace ejk
