// GPU vocabulary: transpose_matrix(x), of an 8 x 8 matrix of 16-bit elements in a warp's registers. Lane 4 g + t gives elements [g][2 t]
// and [g][2 t + 1], and gets [2 t][g] and [2 t + 1][g].
#pragma once
#include "device/gpu.h"

$if arch.platform == 'cuda'
static inline uint32_t transpose_matrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
$elif arch.platform == 'simt'
static inline uint32_t transpose_matrix(uint32_t x) {
  const int from = lane() % 4 * 8 + lane() / 8, shift = lane() / 4 % 2 * 16;
  const uint32_t low = shuffle(x, from) >> shift & 0xffff, high = shuffle(x, from + 4) >> shift & 0xffff;
  return low | high << 16;
}
$end
