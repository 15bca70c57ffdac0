// Vocabulary: square roots and their reciprocals, on every platform to nearest even: the same bits everywhere.
//
//   sqrt_of(x) rsqrt_of(x)   of float, half and bfloat16, and on CPUs of a vector of f32 (Floats); the result has x's type. Of a type of 16
//                            bits the f32 result, rounded. 0, -0 and inf give 0, -0 and inf, and inf, -inf and 0; less than 0 gives NaN.
#pragma once
$if arch.platform == 'cpu'
#include "device/number/roots_cpu.h"
$else
#include "device/gpu.h"
$if arch.platform == 'cuda'
static inline float rsqrt_estimate(float x) {  // to 2^-22
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
$elif arch.platform == 'hip'
static inline float rsqrt_estimate(float x) { return __builtin_amdgcn_rsqf(x); }  // to 1 ulp
$else
// As far from the truth as an instruction's may be.
static inline float rsqrt_estimate(float x) {
  const float y = 1.0f / __builtin_sqrtf(x);
  if (!(x > 0 && x < INFINITE)) return y;
  const uint32_t bits = __builtin_bit_cast(uint32_t, y);
  return __builtin_bit_cast(float, bits & 1 ? bits + 1 : bits - 1);
}
$end

// Tiny x are scaled: not every platform has an estimate of denormals.
static inline bool is_tiny(float x) { return x < 0x1p-100f; }
static inline float scaled_up(float x) { return is_tiny(x) ? x * 0x1p64f : x; }

// 1 / sqrt(x) to 50 bits or more: y, the estimate, times 1 / sqrt(1 - e) = 1 + e / 2 + 3 e^2 / 8 + ..., where x y^2 = 1 - e.
static inline double rsqrt_wide(float x) {
  const double y = rsqrt_estimate(x), e = 1 - x * y * y;
  return y + y * e * (0.5 + 0.375 * e);
}
static inline float rsqrt_of(float x) {
  const float y = static_cast<float>(rsqrt_wide(scaled_up(x))) * (is_tiny(x) ? 0x1p32f : 1.0f);
  return x > 0 && x < INFINITE ? y : rsqrt_estimate(x);
}

$if arch.platform == 'cuda'
static inline float sqrt_of(float x) {
  float y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
$else
// Compilers for AMD differ in how exact a root they make.
static inline float sqrt_of(float x) {
  const float scaled = scaled_up(x), y = static_cast<float>(scaled * rsqrt_wide(scaled)) * (is_tiny(x) ? 0x1p-32f : 1.0f);
  return x > 0 && x < INFINITE ? y : x < 0 ? __builtin_nanf("") : x;
}
$end

template <class T> static inline T sqrt_of(T x) { return from_float<T>(sqrt_of(to_float(x))); }
template <class T> static inline T rsqrt_of(T x) { return from_float<T>(rsqrt_of(to_float(x))); }
$end
