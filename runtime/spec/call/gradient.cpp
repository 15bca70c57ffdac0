// Names and attributes of gradients.
#include "spec/call/gradient.hpp"

#include <algorithm>

namespace ejk::spec {

std::string differentiated(const Spec& spec, const std::string& name) {
  const auto known = [&](const std::string& each) { return spec.tensor(each) || spec.output(each); };
  if (known(name)) return {};
  for (const std::string prefix : {"grad_", "d_", "d"})
    if (name.starts_with(prefix) && known(name.substr(prefix.size()))) return name.substr(prefix.size());
  constexpr std::string_view suffix = "_grad";
  if (name.ends_with(suffix) && known(name.substr(0, name.size() - suffix.size()))) return name.substr(0, name.size() - suffix.size());
  return {};
}

bool is_temporary(const Spec& spec, const std::string& name) {
  return !name.empty() && !spec.tensor(name) && !spec.output(name) && differentiated(spec, name).empty();
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
