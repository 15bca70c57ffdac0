// CPU vocabulary: exp2, log and tanh of vectors of f32, by polynomials. No table, no libm; NaN in gives NaN out.
#pragma once
#include "device/number/vector.h"

constexpr float INFINITE = __builtin_inff();
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

// 2^x for x <= 127, to 5e-7 relative; exactly 0 below -126 and for -inf.
// x = n + f, |f| <= 1/2: adding MAGIC leaves n + 127, which is the exponent field of 2^n, in the low bits. 2^f by a minimax polynomial.
static inline Floats exp2_of(Floats x) {
  constexpr float MAGIC = 0x1.8p23f + 127;
  const Floats shifted = x + MAGIC, f = x - (shifted - MAGIC);
  const Floats scale = reinterpret_cast<Floats>(reinterpret_cast<Integers>(shifted) << 23);
  Floats p = splat(1.112550768273673e-3f);
  p = p * f + 9.666282524684459e-3f;
  p = p * f + 5.557400473319779e-2f;
  p = p * f + 2.4022350650686214e-1f;
  p = p * f + 6.931428306083526e-1f;
  p = (scale * f) * p + scale;
  return x < splat(-126.0f) ? Floats{} : p;
}

// Natural log of x >= 0: -inf for 0, inf for inf. x = 2^n m with sqrt(1/2) <= m < sqrt(2); log m = 2 atanh((m - 1) / (m + 1)).
static inline Floats log_of(Floats x) {
  const Integers normal = x >= splat(0x1p-126f);
  const Floats y = normal ? x : x * 0x1p24f;
  const Integers bits = reinterpret_cast<Integers>(y), n = (bits - 0x3f3504f3) >> 23;
  const Floats m = reinterpret_cast<Floats>(bits - (n << 23));
  const Floats exponent = __builtin_convertvector(n, Floats) - (normal ? Floats{} : splat(24.0f));
  const Floats t = (m - 1.0f) / (m + 1.0f), t2 = t * t;
  Floats p = splat(2.0f / 9);
  p = p * t2 + 2.0f / 7;
  p = p * t2 + 2.0f / 5;
  p = p * t2 + 2.0f / 3;
  const Floats log_m = t * 2.0f + t * t2 * p;
  Floats result = exponent * LN_2 + log_m;
  result = x == splat(0.0f) ? splat(-INFINITE) : result;
  return ((x == splat(INFINITE)) | (x != x)) ? x : result;
}

// tanh to a few units in the last place: for |x| < 0.6 the continued fraction x / (1 + x^2 / (3 + x^2 / (5 + ...))) cut after 9,
// beyond that (e - 1) / (e + 1) with e = exp(2 |x|).
static inline Floats tanh_of(Floats x) {
  const Floats positive = reinterpret_cast<Floats>(reinterpret_cast<Integers>(x) & 0x7fffffff);
  const Floats bounded = splat(20.0f) < positive ? splat(20.0f) : positive, x2 = bounded * bounded;
  const Floats e = exp2_of(bounded * (2 * LOG2_E));
  const Integers small = bounded < splat(0.6f);
  const Floats above = small ? bounded * (945.0f + x2 * (105.0f + x2)) : e - 1.0f;
  const Floats below = small ? 945.0f + x2 * (420.0f + 15.0f * x2) : e + 1.0f;
  const Floats result = above / below;
  return reinterpret_cast<Floats>(reinterpret_cast<Integers>(result) | (reinterpret_cast<Integers>(x) & static_cast<int32_t>(0x80000000)));
}
