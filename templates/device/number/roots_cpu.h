// CPU vocabulary: device/number/roots.h's words of elements and of vectors of f32.
#pragma once
#include "device/number/widen.h"

static inline float sqrt_of(float x) { return __builtin_sqrtf(x); }
// No 1 / sqrt(x) of an f32 is so close to the middle of two f32 that a double's rounding could take it over.
static inline float rsqrt_of(float x) { return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x))); }

// By lane, in arrays: the form that compilers make vector instructions of.
static inline Floats sqrt_of(Floats v) {
  float x[LANES];
  __builtin_memcpy(x, &v, sizeof v);
  for (int lane = 0; lane < LANES; ++lane) x[lane] = sqrt_of(x[lane]);
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
static inline Floats rsqrt_of(Floats v) {
  float x[LANES];
  __builtin_memcpy(x, &v, sizeof v);
  for (int lane = 0; lane < LANES; ++lane) x[lane] = rsqrt_of(x[lane]);
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}

template <class T> static inline T sqrt_of(T x) { return from_float<T>(sqrt_of(to_float(x))); }
template <class T> static inline T rsqrt_of(T x) { return from_float<T>(rsqrt_of(to_float(x))); }
