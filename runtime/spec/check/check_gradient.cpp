// The steps of a gradient against the spec and the kernels they call.
#include <algorithm>
#include <set>

#include "spec/call/gradient.hpp"
#include "spec/check/name_check.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/json.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

class GradientCheck {
 public:
  GradientCheck(const Spec& spec, std::vector<Fault>& faults) : spec_(spec), faults_(faults) {}

  void own_names(const GradientStep& step, const std::vector<std::string>& kernels) {
    if (step.kernel.empty()) {
      known_tensor(step.pointer + "/tensor", step.tensor, true);
      known_tensor(step.pointer + "/is", step.is, false);
      return gives(step.pointer + "/tensor", step.tensor);
    }
    if (std::find(kernels.begin(), kernels.end(), step.kernel) == kernels.end())
      fault(step.pointer + "/kernel", "unknown kernel '" + step.kernel + "'" + suggestion(step.kernel, kernels));
    for (const auto& [name, own] : step.tensors) known_tensor(pointer_to(step.pointer + "/tensors", name), own, false);
    NameRules rules;
    rules.known = contract_names(spec_);
    rules.varying = true;
    rules.place = "an attribute of a gradient";
    NameCheck names(spec_, faults_);
    for (const Named& attribute : step.attributes)
      names.judge(pointer_to(step.pointer + "/attributes", attribute.name), attribute.expression, rules);
  }

  void call(const GradientStep& step, const Spec& target) {
    std::set<std::string> mapped;
    for (const auto& [name, own] : step.tensors) {
      mapped.insert(name);
      const TensorSpec* tensor = target.tensor(name);
      const std::string pointer = pointer_to(step.pointer + "/tensors", name);
      if (!tensor)
        fault(pointer, target.kernel + " has no tensor '" + name + "'" + suggestion(name, names_of_tensors(target)));
      else if (is_temporary(spec_, own))
        temporary(pointer, step, own, tensor->output);
      else if (tensor->output)
        gives(pointer, own);
    }
    for (const TensorSpec& tensor : target.tensors)
      if (!tensor.updated_as.empty())
        fault(step.pointer + "/kernel",
              target.kernel + " updates its input '" + tensor.name + "'; a step of a gradient only makes outputs");
    for (const TensorSpec& tensor : target.tensors)
      if (!tensor.optional && !mapped.count(tensor.name))
        fault(step.pointer + "/tensors", target.kernel + " needs " + tensor.name + ", and the call does not say which tensor that is");
    for (const Named& attribute : step.attributes)
      if (!target.attribute(attribute.name))
        fault(pointer_to(step.pointer + "/attributes", attribute.name),
              target.kernel + " has no attribute '" + attribute.name + "'" + suggestion(attribute.name, names_of_attributes(target)));
  }

 private:
  void fault(const std::string& pointer, std::string sentence) { faults_.push_back({spec_.file, pointer, std::move(sentence)}); }

  // The first step that names it makes it, the others take it.
  void temporary(const std::string& pointer, const GradientStep& step, const std::string& name, bool is_output) {
    const auto first =
        std::find_if(spec_.gradient.begin(), spec_.gradient.end(), [&](const GradientStep& each) { return names(each, name); });
    const bool makes = first->pointer == step.pointer;
    if (makes && !is_output) fault(pointer, "'" + name + "' is a temporary, which no step before this one makes");
    if (!makes && is_output) fault(pointer, "'" + name + "' is a temporary that a step before made already; only gradients are added");
  }

  static bool names(const GradientStep& step, const std::string& name) {
    return std::any_of(step.tensors.begin(), step.tensors.end(), [&](const auto& each) { return each.second == name; });
  }

  // A tensor of the spec, its gradient, or a temporary: a name that several steps have.
  void known_tensor(const std::string& pointer, const std::string& name, bool gradient_only) {
    if (!differentiated(spec_, name).empty() || (!gradient_only && (spec_.tensor(name) || spec_.output(name)))) return;
    if (!gradient_only &&
        std::count_if(spec_.gradient.begin(), spec_.gradient.end(), [&](const GradientStep& step) { return names(step, name); }) > 1)
      return;
    std::vector<std::string> known;
    for (const TensorSpec& tensor : spec_.tensors) {
      if (!gradient_only) known.push_back(tensor.name);
      known.push_back("d" + tensor.name);
    }
    fault(pointer, "'" + name + "' is " + (gradient_only ? "" : "no tensor and ") + "no gradient of one" + suggestion(name, known));
  }

  // What a step computes is the gradient of an input.
  void gives(const std::string& pointer, const std::string& name) {
    const TensorSpec* input = spec_.tensor(differentiated(spec_, name));
    if (input && !input->output && input->updated_as == input->name)
      return fault(pointer, "'" + name + "' would be the gradient of the input '" + input->name +
                                "' and of the output that updates it; give that output a name of its own");
    if (input && !input->output) return;
    fault(pointer, "'" + name + "' is computed here, but it is no gradient of an input");
  }

  const Spec& spec_;
  std::vector<Fault>& faults_;
};

}  // namespace

void check_gradient(const Spec& spec, const std::vector<std::string>& kernels, std::vector<Fault>& faults) {
  for (const GradientStep& step : spec.gradient) GradientCheck(spec, faults).own_names(step, kernels);
}

void check_gradient_calls(const Spec& spec, const Spec& target, std::vector<Fault>& faults) {
  for (const GradientStep& step : spec.gradient)
    if (step.mapped && step.kernel == target.kernel) GradientCheck(spec, faults).call(step, target);
}

}  // namespace ejk::spec
