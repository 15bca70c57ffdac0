// Hopper vocabulary of the chunked recurrence's gradient: sums of what blocks left of flows.
#pragma once

// Two tokens' flows, of lane l tokens 2 l and 2 l + 1: rows from `row` on, added up.
template <int ROWS> static inline void add_rows(const float* flows, int row, double (&sums)[2]) {
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const Pack<float, 2> x = load_pack<2>(flows + (row + i) * CHUNK + 2 * lane());
    sums[0] += x.at[0], sums[1] += x.at[1];
  }
}
static inline double sum_of_warp(double x) {
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) x += __shfl_xor_sync(0xffffffff, x, mask);
  return x;
}
