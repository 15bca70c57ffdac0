// CPU vocabulary: e^x of a log gate in two parts, so that a state that decays a little in each of thousands of steps keeps its digits.
#pragma once
#include "device/number/math.h"

// e^x = base + rest: near 0 it is 1 and e^x - 1, which has all its digits; elsewhere 0 and e^x. -inf gives 0 and 0.
struct SplitExp {
  Floats base, rest;
};

static inline SplitExp split_exp(Floats x) {
  const Integers near = (x > splat(-0.7f)) & (x < splat(0.7f));
  const Floats y = near ? x : Floats{};
  Floats p = splat(1.0f / 9);  // y (1 + y / 2 (1 + y / 3 (...)))
  p = 1.0f + y * p;
  p = 1.0f + y * (1.0f / 8) * p;
  p = 1.0f + y * (1.0f / 7) * p;
  p = 1.0f + y * (1.0f / 6) * p;
  p = 1.0f + y * (1.0f / 5) * p;
  p = 1.0f + y * (1.0f / 4) * p;
  p = 1.0f + y * (1.0f / 3) * p;
  p = 1.0f + y * (1.0f / 2) * p;
  const Floats near_0 = splat(0.0f), one = splat(1.0f);
  return {near ? one : near_0, near ? y * p : exp2_of(x * LOG2_E)};
}
