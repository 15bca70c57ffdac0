// Hopper vocabulary of the chunked recurrence's gradients with the delta rule: products of a warpgroup of which both factors are in shared memory.
// Part of a template, which has defined how many values a STEP has before.
#pragma once

using TokenKeys = float[KEYS / 2];   // 64 tokens by keys, as wgmma has them: a warp has 16 tokens
using TokenPairs = float[CHUNK / 2];  // by tokens

// sums (+)= rows of DEPTH features times that many rows by keys: of a state, or of tokens.
template <int DEPTH> static inline void multiply_by_keys(TokenKeys& sums, uint32_t rows, uint32_t keys, bool add) {
  const uint64_t a = depth_major<2 * DEPTH>(rows), b = row_major<128>(keys, DEPTH);
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) wgmma<Element, KEYS, false, true>(sums, moved(a, 32 * k), moved(b, 2048 * k), add || k > 0);
}
// sums (+)= products of rows with rows, of a step's values.
static inline void multiply_rows_of(TokenPairs& sums, uint32_t left, uint32_t right, bool add) {
  const uint64_t a = depth_major<2 * STEP>(left), b = depth_major<2 * STEP>(right);
#pragma unroll
  for (int k = 0; k < STEP / 16; ++k) wgmma<Element, CHUNK>(sums, moved(a, 32 * k), moved(b, 32 * k), add || k > 0);
}
