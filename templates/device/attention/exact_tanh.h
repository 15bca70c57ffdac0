// GPU vocabulary: tanh to a few units in the last place. The words tanh_of, good to 6e-7 of it, and far_tanh_of, to 2e-7 of 1, which a soft cap
// multiplies, are too rough for f32, whose results are to be good to 1e-5, from scores of about 20 and caps of about 50 on; for f16 and bf16 from
// thousands on, so that variants with them take caps of 1000 at most (100 where it is tanh.approx) and leave others to those that are exact.
#pragma once
#include "device/gpu.h"

// For |x| < 0.6 the continued fraction x / (1 + x^2 / (3 + x^2 / (5 + ...))) cut after 9; beyond that nothing cancels in far_tanh_of.
static inline float exact_tanh_of(float x) {
  const float x2 = x * x;
  return -0.6f < x && x < 0.6f ? x * (945 + x2 * (105 + x2)) * reciprocal(945 + x2 * (420 + 15 * x2)) : far_tanh_of(x);
}

// 1 - tanh(x)^2, which would cancel where tanh is near 1: 4 e / (1 + e)^2 with e = exp(-2 |x|).
static inline float tanh_slope_of(float x) {
  const float e = exp2_of((x < 0 ? x : -x) * (2 * LOG2_E)), r = reciprocal(1 + e);
  return 4 * e * r * r;
}
