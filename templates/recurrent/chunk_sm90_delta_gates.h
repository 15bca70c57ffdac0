// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: gradients of a chunk's log gates. Part of
// backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_token_sums.h"

// By a warp: gradients of log gates from what flows past them; returns the warp's sum of them.
static inline float store_gate_gradients(const DeltaFlows& flows, const float (&log_gates)[2], const GradientRow& to, int64_t stride, int token, int count, bool wanted) {
  float change[2], left = 0;  // from the token after it on
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane() + i;
    const float own = flows.left[t];
    change[i] = flows.read[0][t] + flows.read[1][t] + flows.read_by_keys[t];
#pragma unroll
    for (int part = 0; part < 8; ++part) change[i] -= flows.read_here[part][t];
    change[i] -= own, left += own;
  }
  if (lane() < 12) left += flows.through[0][lane()];
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) left += shuffle_xor(left, mask);
  float sum = change[0] + change[1];
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const float later = shuffle_down(sum, by);
    if (lane() + by < WARP) sum += later;
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane() + i;
    const bool none = token + t >= count || log_gates[i] < -3.4e38f;
    const float gradient = none ? 0 : left + sum - (i ? change[0] : 0);
    if (wanted && token + t < count) to.store((token + t) * stride, gradient);
    total += gradient;
  }
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) total += shuffle_xor(total, mask);
  return total;
}
