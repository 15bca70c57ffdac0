// EJKERNEL_CHECK: a call on host tensors whose inputs are all finite must not give NaN.
#pragma once
#include <span>

#include "ejk/call.hpp"
#include "execute/library_state.hpp"

namespace ejk {

struct Plan;

// Throws CodedError(internal) naming the output, the element, the image and the config. Inputs that are not finite (padding that is never
// read, say) and tensors on a device are not judged; infinity is a legal result (lse of a row that sees nothing). Of an updated input
// only what the call made of it is there to look at: where that is not finite, the call counts as one whose inputs are not.
void check_outputs(const Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors);

}  // namespace ejk
