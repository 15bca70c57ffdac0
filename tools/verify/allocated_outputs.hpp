// A call as a caller makes it that leaves its outputs to be allocated.
#pragma once
#include "reference/call.hpp"

namespace ejk::tools {

// The call's outputs anew: contiguous, of the shapes that its inputs and attributes alone tell. Throws spec::ExpressionError where they do
// not tell one, spec::CallError if it is not legal.
void allocate_outputs(reference::Call& call);

}  // namespace ejk::tools
