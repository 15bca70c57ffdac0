// Binding a call: written tensors may overlap neither themselves nor another; what an output's shape must be.
#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>

#include "spec/call/binder.hpp"

namespace ejk::spec {
namespace {

// Sufficient: each stride steps over everything the smaller ones span. Layouts that interleave without meeting are refused too.
bool meets_itself(const TensorFacts& facts) {
  if (is_empty(facts)) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // |stride|, size
  for (std::size_t i = 0; i < facts.shape.size(); ++i) {
    if (facts.shape[i] > 1) dims.emplace_back(std::abs(facts.strides[i]), facts.shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t span = 0;  // of the dims so far, in elements; check_tensors() has seen that it fits
  for (const auto& [step, size] : dims) {
    if (step <= span) return true;
    span += step * (size - 1);
  }
  return false;
}

// Addresses of the first byte and of the one past the last.
std::pair<std::uintptr_t, std::uintptr_t> bytes_of(const TensorFacts& facts) {
  std::int64_t low = 0, high = 0;
  for (std::size_t i = 0; i < facts.shape.size(); ++i) {
    const std::int64_t reach = facts.shape[i] > 1 ? facts.strides[i] * (facts.shape[i] - 1) : 0;
    (reach < 0 ? low : high) += reach;
  }
  const std::int64_t size = size_of(facts.type);
  return {facts.address + static_cast<std::uintptr_t>(low * size), facts.address + static_cast<std::uintptr_t>((high + 1) * size)};
}

bool share_memory(const TensorFacts& a, const TensorFacts& b) {
  if (a.address == 0 || b.address == 0 || is_empty(a) || is_empty(b)) return false;
  const auto [a_begin, a_end] = bytes_of(a);
  const auto [b_begin, b_end] = bytes_of(b);
  return a_begin < b_end && b_begin < a_end;
}

}  // namespace

void Binder::check_outputs() const {
  for (const TensorSpec& output : spec.tensors) {
    const auto given = binding.facts.tensors.find(output.name);
    if (!output.written() || given == binding.facts.tensors.end()) continue;
    const TensorFacts& facts = given->second;
    const char* const what = output.output ? "output" : "updated input";
    if (meets_itself(facts))
      fail(fmt::format("{} {} has shape {} and strides {}: its elements overlap, expected memory of its own for each", what, output.name,
                       shape_text(facts.shape), shape_text(facts.strides)));
    for (const TensorSpec& other : spec.tensors) {
      const auto beside = binding.facts.tensors.find(other.name);
      if (beside == binding.facts.tensors.end() || other.name == output.name || !share_memory(facts, beside->second)) continue;
      fail(fmt::format("{} {} overlaps {} {} in memory, expected memory of its own", what, output.name,
                       other.output      ? "output"
                       : other.written() ? "updated input"
                                         : "input",
                       other.name));
    }
  }
}

// Of the alternatives that the form has: the one of most dimensions whose dims all have a size in this call; if there is none, the first.
static const Shape* output_shape(const Binding& binding, const TensorSpec& output) {
  const auto sized = [&](const Extent& extent) { return extent.dim.empty() || binding.dims.count(extent.dim) > 0; };
  const Shape *first = nullptr, *best = nullptr;
  for (const Shape& shape : output.shapes) {
    if (!takes_form(shape, binding.form)) continue;
    if (!first) first = &shape;
    if (best && best->extents.size() >= shape.extents.size()) continue;
    if (std::all_of(shape.extents.begin(), shape.extents.end(), sized)) best = &shape;
  }
  return best ? best : first;
}

TensorFacts output_facts(const Binding& binding, const TensorSpec& output) {
  const Shape* const shape = output_shape(binding, output);
  if (!shape) throw ExpressionError(fmt::format("{} has no shape in the {} form", output.name, binding.form), 0);
  const auto model = binding.facts.tensors.find(shape->same_as);
  const auto dim = [&](const std::string& name) {
    return std::get<std::int64_t>(*binding.lookup(name));  // throws if it is not bound
  };
  TensorFacts facts;
  if (model != binding.facts.tensors.end()) facts.shape = model->second.shape;
  for (const Extent& extent : model == binding.facts.tensors.end() ? shape->extents : std::vector<Extent>()) {
    switch (extent.kind) {
      case Extent::Kind::dim:
      case Extent::Kind::dim_or_one:
        facts.shape.push_back(dim(extent.dim));
        break;
      case Extent::Kind::expression:
        facts.shape.push_back(extent.expression.integer(binding));
        break;
      case Extent::Kind::rest: {
        const auto rest = binding.rests.find(extent.dim);
        if (rest == binding.rests.end()) {
          facts.shape.push_back(dim(extent.dim));
        } else {
          facts.shape.insert(facts.shape.end(), rest->second.begin(), rest->second.end());
        }
      }
    }
  }
  if (!row_major(facts.shape, facts.strides))
    throw ExpressionError(fmt::format("{} of shape {} is too large", output.name, shape_text(facts.shape)), 0);
  std::string type = output.type;
  if (const auto bound = binding.types.find(type); bound != binding.types.end()) type = bound->second;
  const auto known = dtype_named(type);
  if (!known) throw ExpressionError(fmt::format("the type {} of {} is not bound", type, output.name), 0);
  facts.type = *known;
  return facts;
}

}  // namespace ejk::spec
