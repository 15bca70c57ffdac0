// What a spec's "gradient" means for one call: which tensor a name stands for, and the attributes of the gradient's calls.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "spec/call/binding.hpp"

namespace ejk::spec {

// "dx", "d_x", "grad_x", "x_grad" → "x", if the spec has a tensor or output x and none of the longer name; "" for other names.
std::string differentiated(const Spec& spec, const std::string& name);

// Whether a name in a mapped step is a temporary: no tensor of the spec, no output of it, no gradient of one.
bool is_temporary(const Spec& spec, const std::string& name);

// The kernels whose calls make up the gradient, each once, in order; empty: there is none.
std::vector<std::string> gradient_kernels(const Spec& spec);

// The attributes of a mapped step's call, from the binding of the call that is differentiated. Throws ExpressionError.
std::map<std::string, Value> gradient_attributes(const GradientStep& step, const Binding& binding);

// Adds the faults of all steps that the spec alone shows; `kernels`: all that there are.
void check_gradient(const Spec& spec, const std::vector<std::string>& kernels, std::vector<Fault>& faults);

// Adds the faults of the mapped steps that call `target`: unknown tensors and attributes, required ones that are missing,
// temporaries that no step before makes.
void check_gradient_calls(const Spec& spec, const Spec& target, std::vector<Fault>& faults);

}  // namespace ejk::spec
