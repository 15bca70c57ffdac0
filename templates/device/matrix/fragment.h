// GPU vocabulary: reductions over the lanes that have a row, or a column, of a fragment of C of mma_16x8x16 (rows are of lane / 4, columns
// of lane % 4).
#pragma once
#include "device/gpu.h"

static inline float largest_of_fragment_row(float x) {
  x = larger_of(x, shuffle_xor(x, 1));
  return larger_of(x, shuffle_xor(x, 2));
}
static inline float largest_of_fragment_column(float x) {
#pragma unroll
  for (int mask = 4; mask < WARP; mask *= 2) x = larger_of(x, shuffle_xor(x, mask));
  return x;
}
static inline float sum_of_fragment_column(float x) {
#pragma unroll
  for (int mask = 4; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}
