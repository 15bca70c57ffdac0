// Images that a call's gradient will need, built while the call's own is.
#pragma once
#include <string>

#include "ejk/kernel.hpp"

namespace ejk {

// While one lives, calls of this thread that make a plan have the images of their gradients built behind them: of the inputs named,
// separated by commas; nullptr: of no call.
class GradientExpected {
 public:
  explicit GradientExpected(const char* inputs) noexcept;
  GradientExpected(const GradientExpected&) = delete;
  GradientExpected& operator=(const GradientExpected&) = delete;
  ~GradientExpected();

 private:
  const char* const before_;
};

// Of this call, if its gradient is expected. Nothing is tuned for it, and nothing that goes wrong is told but by EJKERNEL_LOG: the
// gradient's own call tells.
void build_gradient_ahead(const Invocation& invocation) noexcept;

}  // namespace ejk
