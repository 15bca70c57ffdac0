// From the caller's tensors and attributes to what runtime/spec binds.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ejk/call.hpp"
#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"
#include "spec/call/binding.hpp"

namespace ejk {

spec::TensorFacts facts_of(const TensorView& view);
spec::CallFacts facts_of(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                         std::span<const AttributeValue> attributes);

Value value_of(const AttributeValue& attribute);

// By name; the order of the spec is not needed here.
Invocation invocation_of(const KernelHandle& kernel, const spec::CallFacts& facts, const std::map<std::string, TensorView>& tensors,
                         const std::string& device, Stream stream);

// The machine all given tensors lie on. Throws CallError if they disagree or no backend serves that device.
const Machine& machine_of(const KernelHandle& kernel, std::span<const TensorView* const> tensors);

std::string name_of(Device device);  // "cpu", "cuda:1"

// Throws CallError where the shape cannot be told: it depends on data that is not on the host, or does not fit 64 bits; of an input that
// is updated, where it is not given.
spec::TensorFacts shape_of_output(const spec::Binding& binding, const spec::TensorSpec& output);

// What a missing output would have to be, for errors: "expected one of shape [2, 6]", or what keeps its shape from being told.
std::string expected_output(const spec::Binding& binding, const spec::TensorSpec& output);

// Of tensors by name, the outputs that are the memory of an input ("updates") and have a name of their own. They need not be given.
// Throws CallError where one that is given is not the input's memory.
std::vector<std::string> updated_memory(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors);

// Positional arguments from named ones; throws CallError for a name the kernel does not have (with those it has).
struct Positional {
  std::vector<TensorView> storage;
  std::vector<const TensorView*> tensors;
  std::vector<AttributeValue> attributes;
};
Positional positional(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, Value>& attributes);

}  // namespace ejk
