// Gradients of attention in float64: SEMANTICS sections 0 and 1, every option, from the inputs, out, lse and dout.
#pragma once
#include "kernels/attention_scores.hpp"
#include "reference/random.hpp"

namespace ejk::reference {

// All gradients of the call, and what rounding may leave of them ("dq rounding").
Values attention_gradients(const Call& call);

// Some rows of "dq", "dk" and "dv"; none of a call with dweights. Gradients of a bias and of sinks are sums over too much.
Samples attention_gradient_samples(const Call& call, Rng& rng);

}  // namespace ejk::reference
