// GPU vocabulary of mla_attention: one row times a head's weights, by all threads of a block. Part of a template, which has defined before: Element, WARPS,
// THREADS; and weight_row.
#pragma once

static inline float sum_of_warp(float x) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

// to[r] = the sum over d of row[d] * w[r, head, d], by way of `own`, which has room for the row; all of shared memory.
static inline void absorb(const Element* row, const View& w, int head, float* own, float* to) {
  const int features = static_cast<int>(w.shape[2]), latent = static_cast<int>(w.shape[0]);
#pragma unroll 1
  for (int d = thread_x(); d < features; d += THREADS) own[d] = to_float(row[d]);
  sync_block();
#pragma unroll 1
  for (int r = warp(); r < latent; r += WARPS) {
    const Element* weights = weight_row<Element>(w, r, head);
    float sum = 0;
#pragma unroll 1
    for (int d = lane(); d < features; d += WARP) sum += own[d] * to_float(weights[d]);
    sum = sum_of_warp(sum);
    if (lane() == 0) to[r] = sum;
  }
  sync_block();
}

// to[d] = the sum over r of values[r] * w[r, head, d].
static inline void project(const float* values, const View& w, int head, Element* to) {
  const int features = static_cast<int>(w.shape[2]), latent = static_cast<int>(w.shape[0]);
#pragma unroll 1
  for (int d = thread_x(); d < features; d += THREADS) {
    float sum = 0;
#pragma unroll 1
    for (int r = 0; r < latent; ++r) sum += values[r] * to_float(weight_row<Element>(w, r, head)[d]);
    to[d] = from_float<Element>(sum);
  }
}
