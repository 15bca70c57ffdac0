// The binding without outputs, and what it says of them.
#include "verify/allocated_outputs.hpp"

#include <fmt/format.h>

namespace ejk::tools {

void allocate_outputs(reference::Call& call) {
  const auto& spec = *call.spec;
  auto facts = call.facts();
  for (const auto& tensor : spec.tensors)
    if (tensor.output) facts.tensors.erase(tensor.name);
  const auto bare = spec::bind(spec, std::move(facts));
  for (auto& output : call.outputs) {
    const auto* tensor = spec.tensor(output.name());
    if (!tensor || !tensor->output) continue;  // an input's memory
    try {
      output = reference::HostTensor(output.name(), output.type(), spec::output_facts(bare, *tensor).shape);
    } catch (const spec::ExpressionError& error) {
      throw spec::ExpressionError(fmt::format("the shape of {}, left to be allocated, cannot be told: {}", output.name(), error.what()), 0);
    }
  }
  call.rebind();
  call.poison_outputs();
}

}  // namespace ejk::tools
