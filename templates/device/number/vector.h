// CPU vocabulary: vectors of LANES floats: splat, maximum, test, transpose, partial loads.
#pragma once
#include "device/number/widen.h"

typedef int32_t Integers __attribute__((vector_size(LANES * 4)));

static inline Floats splat(float x) { return x - Floats{}; }
static inline Integers splat_integer(int32_t x) { return x - Integers{}; }

// The larger of each pair; b where a is NaN.
static inline Floats larger_of(Floats a, Floats b) { return a > b ? a : b; }

// `mask` is a comparison's result: -1 or 0 in each lane.
static inline bool any(Integers mask) {
  int32_t found = 0;
  for (int lane = 0; lane < LANES; ++lane) found |= mask[lane];
  return found != 0;
}

// The first `count` of LANES elements, zeros after them.
template <class T> static inline Floats load_some(const T* from, int64_t count) {
  if (count >= LANES) return load_floats(from);
  Floats v = {};
  for (int64_t i = 0; i < count; ++i) v[i] = to_float(from[i]);
  return v;
}

// One step of a transpose: swaps the off-diagonal HALF x HALF blocks of every 2 HALF x 2 HALF block.
template <int HALF> static inline __attribute__((always_inline)) void swap_blocks(Floats (&rows)[LANES]) {
  Integers upper, lower;
  for (int lane = 0; lane < LANES; ++lane) {
    upper[lane] = (lane & HALF) ? LANES + lane - HALF : lane;
    lower[lane] = (lane & HALF) ? LANES + lane : lane + HALF;
  }
#pragma GCC unroll 16
  for (int row = 0; row < LANES; ++row) {
    if (row & HALF) continue;
    const Floats a = rows[row], b = rows[row + HALF];
#ifdef __clang__
    for (int lane = 0; lane < LANES; ++lane) {
      rows[row][lane] = (lane & HALF) ? b[lane - HALF] : a[lane];
      rows[row + HALF][lane] = (lane & HALF) ? b[lane] : a[lane + HALF];
    }
#else
    rows[row] = __builtin_shuffle(a, b, upper);
    rows[row + HALF] = __builtin_shuffle(a, b, lower);
#endif
  }
  if constexpr (2 * HALF < LANES) swap_blocks<2 * HALF>(rows);
}

// LANES rows of LANES floats become columns.
static inline __attribute__((always_inline)) void transpose(Floats (&rows)[LANES]) { swap_blocks<1>(rows); }
