// "gradient": {"kernel": K}, or a list of calls and equal tensors.
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

GradientStep mapped_call(const JsonNode& node) {
  GradientStep step;
  step.pointer = node.pointer();
  step.mapped = true;
  if (!node.open("gradient_call")) return step;
  step.kernel = node.text("kernel");
  for (const auto& [name, member] : node.members("tensors"))
    if (const auto own = member.text()) step.tensors.emplace_back(name, *own);
  for (const auto& [name, member] : node.members("attributes")) step.attributes.push_back({name, member.expression()});
  return step;
}

GradientStep equal_tensor(const JsonNode& node) {
  GradientStep step;
  step.pointer = node.pointer();
  if (!node.open("gradient_equal")) return step;
  step.tensor = node.text("tensor");
  step.is = node.text("is");
  return step;
}

}  // namespace

std::vector<GradientStep> load_gradient(const JsonNode& node) {
  std::vector<GradientStep> steps;
  if (node.json().is_object()) {
    if (!node.open("gradient")) return {};
    steps.emplace_back();
    steps.back().kernel = node.text("kernel");
    steps.back().pointer = node.pointer();
    return steps;
  }
  if (!node.json().is_array()) {
    node.wrong_kind(R"(a gradient: {"kernel": name}, or a list of calls)");
    return {};
  }
  for (const JsonNode& item : node.items())
    steps.push_back(item.json().is_object() && item.json().contains("is") ? equal_tensor(item) : mapped_call(item));
  if (steps.empty()) node.fault("the gradient has no calls; leave it out if there is none");
  return steps;
}

}  // namespace ejk::spec
