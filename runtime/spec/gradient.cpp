// Names and attributes of gradients.
#include "spec/gradient.hpp"

#include <algorithm>

namespace ejk::spec {

std::string differentiated(const Spec& spec, const std::string& name) {
  if (spec.tensor(name)) return {};
  for (const std::string prefix : {"grad_", "d_", "d"})
    if (name.starts_with(prefix) && spec.tensor(name.substr(prefix.size()))) return name.substr(prefix.size());
  constexpr std::string_view suffix = "_grad";
  if (name.ends_with(suffix) && spec.tensor(name.substr(0, name.size() - suffix.size())))
    return name.substr(0, name.size() - suffix.size());
  return {};
}

std::vector<std::string> gradient_kernels(const Spec& spec) {
  std::vector<std::string> kernels;
  for (const GradientStep& step : spec.gradient)
    if (!step.kernel.empty() && std::find(kernels.begin(), kernels.end(), step.kernel) == kernels.end()) kernels.push_back(step.kernel);
  return kernels;
}

std::map<std::string, Value> gradient_attributes(const GradientStep& step, const Binding& binding) {
  std::map<std::string, Value> values;
  for (const Named& attribute : step.attributes) values[attribute.name] = attribute.expression.evaluate(binding);
  return values;
}

}  // namespace ejk::spec
