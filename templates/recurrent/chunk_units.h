// GPU vocabulary of the chunked recurrence's gradient of halves: powers of two that keep numbers within a half's range. Part of a template
// of f16, which includes it after chunk_pairs.h.
//
// Rows of calls are halves as they are. What is computed of them may be larger than 65504, or so small that a half has no digits left: so
// states and their gradients are kept times a power of two of each 16 columns, and weights of pairs of each 16 x 16 tokens, that makes the
// largest about 2^14. What is 2^28 times smaller still has all digits. Products of such operands are added up apart, and go into the sum
// times the inverse.
#pragma once
#include "recurrent/chunk_unit.h"

static inline void add_times(float (&sums)[2][4], const float (&more)[2][4], float factor) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] += more[n][i] * factor;
}

// sums += factor times a's rows times `rows`, of tiles in parts, without the products that are below the last digits.
template <int A_PARTS, int ROW_PARTS, class Left, class Rows>
static inline void add_scaled_rows(KeySums& sums, const Left& a_tile, const Rows& rows, int row, float factor) {
  uint32_t a[A_PARTS][4];
#pragma unroll
  for (int part = 0; part < A_PARTS; ++part) Left{a_tile.base + part * a_tile.BYTES}.load_a(a[part], 16 * row_slice(), row);
  each_slice<SLICES>([&](int j, int slice) {
    sync_warp();  // one slice after another, for the sake of registers
    float own[2][4] = {};
#pragma unroll
    for (int other = ROW_PARTS - 1; other >= 0; --other) {
      uint32_t b[4];
      Rows{rows.base + other * rows.BYTES}.load_b_transposed(b, row, 16 * slice);
#pragma unroll
      for (int part = 0; part < A_PARTS && (A_PARTS == 1 || part + other < A_PARTS); ++part) multiply_two(own[0], own[1], a[part], b);
    }
    add_times(sums[j], own, factor);
  });
}
// The same of one operand of 16 rows.
template <class Rows> static inline void add_scaled_row(KeySums& sums, const uint32_t (&a)[4], const Rows& rows, int row, float factor) {
  each_slice<SLICES>([&](int j, int slice) {
    sync_warp();
    uint32_t b[4];
    float own[2][4] = {};
    rows.load_b_transposed(b, row, 16 * slice);
    multiply_two(own[0], own[1], a, b);
    add_times(sums[j], own, factor);
  });
}

// Products of rows' 16 numbers from `column` on, times a factor: of tokens t with tokens s, in the slices where there is an s <= t.
template <int T_PARTS, int S_PARTS, class Rows>
static inline void add_scaled_pairs(PairSums& sums, const Rows& of_t, const Rows& of_s, int column, float factor) {
  uint32_t a[T_PARTS][4];
#pragma unroll
  for (int part = 0; part < T_PARTS; ++part) Rows{of_t.base + part * of_t.BYTES}.load_a(a[part], 16 * row_slice(), column);
  each_slice<4>([&](int j, int slice) {
    if (slice > row_slice()) return;
    sync_warp();
    float own[2][4] = {};
#pragma unroll
    for (int other = S_PARTS - 1; other >= 0; --other) {
      uint32_t b[4];
      Rows{of_s.base + other * of_s.BYTES}.load_b(b, 16 * slice, column);
#pragma unroll
      for (int part = 0; part < T_PARTS && part + other < S_PARTS; ++part) multiply_two(own[0], own[1], a[part], b);
    }
    add_times(sums[j], own, factor);
  });
}

// Inverses of units of a chunk's blocks of 16 x 16 pairs of tokens.
struct PairUnits {
  float inverses[4][4];

  // The warp's block of weights, to a square.
  void put(char* square, int slice, const float (&sums)[2][4]) {
    const Unit unit = common_unit(sums);
    float scaled[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) scaled[i / 4][i % 4] = sums[i / 4][i % 4] * unit.of;
    put_pair_of(square, slice, scaled);
    if (lane() == 0) inverses[row_slice()][slice] = unit.inverse;
  }
};
