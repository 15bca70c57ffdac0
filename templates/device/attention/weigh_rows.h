// GPU vocabulary of decoding: the softmax of query rows that are columns of products. Part of a template, which has the types of query_types.h, and STALE:
// how far scores may leave a row's reference behind.
#pragma once

// Scores become weights; references follow.
static inline void weigh(Scores& s, Outputs& o, PerRow& reference, PerRow& sum) {
  PerRow largest;
  bool grows = false;
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[r][i] = largest_of_row(s, r, i);
      grows = grows || largest[r][i] > reference[r][i] + STALE;
    }
  if (any_in_warp(grows)) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float now = larger_of(reference[r][i], largest_of_fragment_column(largest[r][i])), factor = exp2_of(reference[r][i] - now);
        reference[r][i] = now;
        sum[r][i] *= factor;
        multiply_row(o, r, i, factor);
      }
  }
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][r][i] = exp2_of(s[m][r][i] - reference[r][i % 2]);
        sum[r][i % 2] += s[m][r][i];
      }
}
