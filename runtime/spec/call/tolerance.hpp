// How far from the truth a call's outputs may be.
#pragma once
#include <string_view>

#include "spec/call/binding.hpp"

namespace ejk::spec {

// The largest relative Frobenius error of an output of that element type: what the spec says of the type, or of the output's "precision" in
// this call, whichever is larger. Throws std::out_of_range naming the type if the spec has none.
double tolerance_of(const Binding& call, std::string_view output, DType type);

}  // namespace ejk::spec
