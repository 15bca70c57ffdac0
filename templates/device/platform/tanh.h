// GPU vocabulary: tanh, the same on every platform.
#pragma once

// tanh to 2e-7 of 1, in the fewest instructions: for loops that are bound by these, whose results need no more.
static inline float far_tanh_of(float x) { return 1 - 2 * reciprocal(1 + exp2_of(x * (2 * LOG2_E))); }

// tanh to 6e-7 of it, for x near 0, too: x P(x^2) / Q(x^2), the minimax quotient of these degrees for |x| < 8. Beyond that tanh is 1 to 2.3e-7.
// Q begins with 1, which takes no register.
static inline float tanh_of(float x) {
  const float near = cut_to(x, 8), x2 = near * near;
  const float above = 4066352 + x2 * (525603 + x2 * (11999.8965f + x2 * 46.4719353f));
  const float below = 4066352.75f + x2 * (1881049.125f + x2 * (96842.4141f + x2 * (970.512146f + x2)));
  return near * above * reciprocal(below);
}
