// GPU vocabulary: rnn/rnn_sums.h of sums that matrix instructions make.
#pragma once
#include "rnn/rnn_sums.h"

// A warp's tile of sums, as a matrix instruction leaves them: lines 16 tile .., all rows.
template <class Sum> static inline void store_sums(float* part, int tile, const Sum& sum) {
#pragma unroll
  for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      store_pack(part + place_of_sum(16 * tile + 8 * h + lane() / 4, 8 * n + lane() % 4 * 2), Pack<float, 2>{{sum(n, 2 * h), sum(n, 2 * h + 1)}});
}
