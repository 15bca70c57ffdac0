// Gradients of attention in float64: docs/semantics.md, "flash_attention", every option, from the inputs, out, lse and dout.
#pragma once
#include "reference/kernels/attention_scores.hpp"
#include "reference/random.hpp"

namespace ejk::reference {

// What rounding to nearest leaves at most, relative.
double unit_of(DType type);

// All gradients of the call, and what rounding may leave of them ("dq rounding").
Values attention_gradients(const Call& call);

// Some rows of "dq", "dk" and "dv"; none of a call with dweights. Gradients of a bias and of sinks are sums over too much.
Samples attention_gradient_samples(const Call& call, Rng& rng);

}  // namespace ejk::reference
