// CPU vocabulary: the sums over lanes of LANES vectors at once, as one vector.
#pragma once
#include "device/number/vector.h"

// One step: pairs of vectors become one; lanes with the bit HALF hold what was the second's.
template <int HALF, int COUNT> static inline __attribute__((always_inline)) void add_pairs(Floats* v) {
#pragma GCC unroll 16
  for (int pair = 0; pair < COUNT / 2; ++pair) {
    const Floats a = v[2 * pair], b = v[2 * pair + 1];
#ifdef __clang__
    Floats sum;
    for (int lane = 0; lane < LANES; ++lane) sum[lane] = (lane & HALF) ? b[lane - HALF] + b[lane] : a[lane] + a[lane + HALF];
    v[pair] = sum;
#else
    Integers upper, lower;
    for (int lane = 0; lane < LANES; ++lane) {
      upper[lane] = (lane & HALF) ? LANES + lane - HALF : lane;
      lower[lane] = (lane & HALF) ? LANES + lane : lane + HALF;
    }
    v[pair] = __builtin_shuffle(a, b, upper) + __builtin_shuffle(a, b, lower);
#endif
  }
  if constexpr (COUNT > 2) add_pairs<2 * HALF, COUNT / 2>(v);
}

// Lane i of the result is the sum of the lanes of v[i]. Spoils v.
static inline __attribute__((always_inline)) Floats row_sums(Floats (&v)[LANES]) {
  add_pairs<1, LANES>(v);
  return v[0];
}
