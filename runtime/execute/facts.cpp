// Tensors and attributes as runtime/spec wants them.
#include "execute/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace ejk {
namespace {

[[noreturn]] void bad(const std::string& message) { throw spec::CallError(spec::CallError::Kind::bad_input, message); }

template <class Range>
std::string names_of(const Range& range) {
  std::string text;
  for (const auto& item : range) text += (text.empty() ? "" : ", ") + item.name;
  return text;
}

bool same_memory(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.type == b.type && a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape) &&
         std::equal(a.strides, a.strides + a.rank, b.strides);
}

}  // namespace

std::string name_of(Device device) {
  if (device.type == DeviceType::cpu) return "cpu";
  for (auto* backend : backends())
    if (backend->device_type() == device.type) return fmt::format("{}:{}", backend->platform(), device.index);
  if (device.type == DeviceType::rocm) return fmt::format("rocm:{}", device.index);
  return fmt::format("device type {}, number {}", static_cast<int>(device.type), device.index);
}

spec::TensorFacts facts_of(const TensorView& view) {
  spec::TensorFacts facts;
  facts.type = view.type;
  const int rank = std::min<int>(view.rank, max_rank);
  facts.shape.assign(view.shape, view.shape + rank);
  facts.strides.assign(view.strides, view.strides + rank);
  if (view.rank > max_rank) facts.shape.resize(static_cast<std::size_t>(view.rank), 1), facts.strides.resize(facts.shape.size(), 1);
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  facts.address = address;
  facts.alignment = address ? std::int64_t{1} << std::min(std::countr_zero(address), 6) : 64;
  facts.host_data = view.device.type == DeviceType::cpu ? view.data : nullptr;
  return facts;
}

Value value_of(const AttributeValue& attribute) {
  switch (attribute.kind) {
    case AttributeValue::Kind::boolean:
      return attribute.boolean;
    case AttributeValue::Kind::integer:
      return attribute.integer;
    case AttributeValue::Kind::floating:
      return attribute.floating;
    case AttributeValue::Kind::string:
      return std::string(attribute.string ? attribute.string : "");
    case AttributeValue::Kind::absent:
      break;
  }
  throw std::logic_error("value_of: the attribute is absent");
}

spec::CallFacts facts_of(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                         std::span<const AttributeValue> attributes) {
  const auto& spec = *kernel.spec;
  if (tensors.size() != spec.tensors.size() || attributes.size() != spec.attributes.size())
    bad(fmt::format(
        "{}: the packed call gives {} tensors and {} attributes, expected {} ({}) and {} ({}); the header it was compiled with is of "
        "another version",
        kernel.name, tensors.size(), attributes.size(), spec.tensors.size(), names_of(spec.tensors), spec.attributes.size(),
        names_of(spec.attributes)));
  spec::CallFacts facts;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] && tensors[i]->given()) facts.tensors.emplace(spec.tensors[i].name, facts_of(*tensors[i]));
  for (std::size_t i = 0; i < attributes.size(); ++i)
    if (attributes[i].kind != AttributeValue::Kind::absent) facts.attributes.emplace(spec.attributes[i].name, value_of(attributes[i]));
  return facts;
}

Invocation invocation_of(const KernelHandle& kernel, const spec::CallFacts& facts, const std::map<std::string, TensorView>& tensors,
                         const std::string& device, Stream stream) {
  Invocation invocation;
  invocation.kernel = kernel.name;
  invocation.tensors = tensors;
  invocation.attributes = facts.attributes;
  invocation.device = device;
  invocation.stream = stream;
  for (const auto& attribute : kernel.spec->attributes)
    if (attribute.varies) invocation.varying.push_back(attribute.name);
  return invocation;
}

namespace {

// The host is one machine, whatever number its memory is given: XLA counts its CPU devices.
bool same_device(const Device& a, const Device& b) { return a == b || (a.type == DeviceType::cpu && b.type == DeviceType::cpu); }

}  // namespace

const Machine& machine_of(const KernelHandle& kernel, std::span<const TensorView* const> tensors) {
  const TensorView* first = nullptr;
  std::size_t first_index = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i] || !tensors[i]->given()) continue;
    if (!first) {
      first = tensors[i];
      first_index = i;
    } else if (!same_device(tensors[i]->device, first->device)) {
      bad(fmt::format("{}: {} is on {}, but {} is on {}; all tensors of a call must be on one device", kernel.name,
                      kernel.spec->tensors[i].name, name_of(tensors[i]->device), kernel.spec->tensors[first_index].name,
                      name_of(first->device)));
    }
  }
  const Device device = first ? first->device : Device{};
  const auto* machine = Library::instance().machine(device);
  if (!machine)
    throw spec::CallError(
        spec::CallError::Kind::unsupported,
        fmt::format("{}: its tensors are on {}, which is no device that ejk found; `ejk info` lists them", kernel.name, name_of(device)));
  if (!machine->probe.available)
    throw spec::CallError(spec::CallError::Kind::unsupported, fmt::format("{}: its tensors are on {}, but that backend cannot be used: {}",
                                                                          kernel.name, name_of(device), machine->probe.why_not));
  return *machine;
}

spec::TensorFacts shape_of_output(const spec::Binding& binding, const spec::TensorSpec& output) {
  if (!output.output) {
    const auto given = binding.facts.tensors.find(output.name);
    if (given != binding.facts.tensors.end()) return given->second;
    bad(fmt::format("{}: {} is not given, so there is no memory to update", binding.spec->kernel, output.name));
  }
  try {
    return spec::output_facts(binding, output);
  } catch (const spec::ExpressionError& e) {
    bad(fmt::format("{}: the shape of {} cannot be told: {}; only data on the host is read", binding.spec->kernel, output.name, e.what()));
  }
}

std::string expected_output(const spec::Binding& binding, const spec::TensorSpec& output) {
  try {
    return fmt::format("expected one of shape [{}]", fmt::join(spec::output_facts(binding, output).shape, ", "));
  } catch (const spec::ExpressionError& e) {
    return fmt::format("and its shape cannot be told without it: {}; data on a device is not read", e.what());
  }
}

std::vector<std::string> updated_memory(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors) {
  std::vector<std::string> names;
  for (const auto& output : kernel.spec->outputs) {
    if (output.updates.empty() || output.name == output.updates) continue;
    const auto given = tensors.find(output.name);
    if (given == tensors.end()) continue;
    names.push_back(output.name);
    const auto input = tensors.find(output.updates);
    if (!given->second.given() || (input != tensors.end() && same_memory(given->second, input->second))) continue;
    bad(fmt::format("{}: output {} is the memory of the input {}, updated; {}, expected that same memory, or none", kernel.name,
                    output.name, output.updates, input == tensors.end() ? output.updates + " is not given" : "other memory is given"));
  }
  return names;
}

Positional positional(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, Value>& attributes) {
  const auto& spec = *kernel.spec;
  Positional result;
  result.storage.resize(spec.tensors.size());
  result.attributes.resize(spec.attributes.size());
  const auto index_in = [&](const auto& list, const std::string& name, const char* what) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.name == name; });
    if (found == list.end()) bad(fmt::format("{}: no {} '{}'; it has {}", kernel.name, what, name, names_of(list)));
    return static_cast<std::size_t>(found - list.begin());
  };
  const auto updated = updated_memory(kernel, tensors);
  for (const auto& [name, view] : tensors)
    if (std::find(updated.begin(), updated.end(), name) == updated.end()) result.storage[index_in(spec.tensors, name, "tensor")] = view;
  for (const auto& view : result.storage) result.tensors.push_back(&view);
  for (const auto& [name, value] : attributes) {
    auto& slot = result.attributes[index_in(spec.attributes, name, "attribute")];
    if (const auto* text = std::get_if<std::string>(&value))
      slot = AttributeValue::of(text->c_str());
    else
      std::visit(
          [&](const auto& v) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::string>) slot = AttributeValue::of(v);
          },
          value);
  }
  return result;
}

}  // namespace ejk
