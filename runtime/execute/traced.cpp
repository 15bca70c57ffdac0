// Calls without data: the contract as JSON, and the choice that a plan makes.
#include "ejk/traced.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "execute/plan.hpp"

namespace ejk {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, TensorView>;
using Values = std::map<std::string, Value>;

json tensor_json(DType type, std::span<const std::int64_t> shape) {
  return {{"type", std::string(name_of(type))}, {"shape", json(std::vector<std::int64_t>(shape.begin(), shape.end()))}};
}

Tensors without_data(Tensors tensors) {
  for (auto& [name, view] : tensors) view.data = nullptr;
  return tensors;
}

spec::Binding bound(const KernelHandle& kernel, const Tensors& tensors, const Values& attributes) {
  const auto arguments = positional(kernel, tensors, attributes);
  return spec::bind(*kernel.spec, facts_of(kernel, arguments.tensors, arguments.attributes));
}

json output_json(const spec::Binding& binding, const spec::TensorSpec& output) {
  try {
    const auto facts = spec::output_facts(binding, output);
    return tensor_json(facts.type, facts.shape);
  } catch (const spec::ExpressionError& error) {
    return {{"unknown", error.what()}};
  }
}

// Where the batch dim stands among a tensor's dimensions.
struct BatchAxis {
  json index;  // null: nowhere
  bool or_one = false;
};
BatchAxis batch_axis(const spec::Shape* shape, std::size_t rank, const std::string& dim) {
  using Kind = spec::Extent::Kind;
  for (std::size_t i = 0; shape && i < shape->extents.size(); ++i) {
    const auto& extent = shape->extents[i];
    if (extent.dim == dim && (extent.kind == Kind::dim || extent.kind == Kind::dim_or_one))
      return {shape->dimension_of(i, rank), extent.kind == Kind::dim_or_one};
  }
  return {};
}

// Of an output that is not given; one whose shape only data tells counts as having no dims.
std::size_t rank_of(const spec::Binding& binding, const spec::TensorSpec& output) {
  try {
    return spec::output_facts(binding, output).shape.size();
  } catch (const spec::ExpressionError&) {
    return 0;
  }
}

json batch_json(const spec::Binding& binding) {
  const auto& [dim, condition] = binding.spec->batch;
  if (dim.empty() || !binding.dims.contains(dim) || (condition && !condition.boolean(binding))) return nullptr;
  auto axes = json::object();
  auto or_one = json::array();
  for (const auto& tensor : binding.spec->tensors) {
    const auto given = binding.facts.tensors.find(tensor.name);
    if (!tensor.output && given == binding.facts.tensors.end()) continue;
    const auto rank = given == binding.facts.tensors.end() ? rank_of(binding, tensor) : given->second.shape.size();
    const auto axis = batch_axis(spec::shape_for(tensor, binding.form, rank), rank, dim);
    axes[tensor.name] = axis.index;
    if (!tensor.updated_as.empty()) axes[tensor.updated_as] = axis.index;
    if (axis.or_one) or_one.push_back(tensor.name);
  }
  return {{"dim", dim}, {"axes", axes}, {"or_one", or_one}};
}

}  // namespace

Result<std::string> bind_call(const std::string& kernel, const Tensors& tensors, const Values& attributes) {
  return guarded([&]() -> Result<std::string> {
    const auto& handle = require_kernel(kernel);
    const auto binding = bound(handle, without_data(tensors), attributes);
    auto outputs = json::object();
    for (const auto& tensor : handle.spec->tensors) {
      const auto given = binding.facts.tensors.find(tensor.name);
      if (tensor.output)
        outputs[tensor.name] = output_json(binding, tensor);
      else if (!tensor.updated_as.empty() && given != binding.facts.tensors.end())
        outputs[tensor.updated_as] = tensor_json(given->second.type, given->second.shape);
    }
    return json{{"form", binding.form},
                {"dims", json(std::map<std::string, std::int64_t>(binding.dims.begin(), binding.dims.end()))},
                {"batch", batch_json(binding)},
                {"outputs", outputs}}
        .dump();
  });
}

Result<Choice> choose(const std::string& kernel, const Tensors& tensors, const Values& attributes, const Config* config) {
  return guarded([&]() -> Result<Choice> {
    const auto& handle = require_kernel(kernel);
    const auto views = without_data(tensors);
    const auto arguments = positional(handle, views, attributes);
    const auto plan = make_plan(handle, arguments.tensors, arguments.attributes, {}, config, nullptr, PlanFor::choice);
    const auto& resolved = plan->resolved;
    return Choice{public_config({resolved.candidate, resolved.config}), resolved.image.id, plan->workspace_bytes};
  });
}

}  // namespace ejk
