// GPU vocabulary of the chunked recurrence, all chunks at once: products of a chunk's rows, by WARPS warps. Part of a template, which has
// defined HALVES = WARPS / 4 before, and what chunk_block.h asks for.
#pragma once
#include "recurrent/chunk_block.h"

// Warp w has rows 16 (w % 4) and on, and every HALVES-th slice of 16 columns.
static inline int row_slice() { return warp() % 4; }
template <int COUNT> constexpr int OWN = (COUNT + HALVES - 1) / HALVES;
template <int COUNT, class Use> static inline void each_slice(Use use) {
#pragma unroll
  for (int j = 0; j < OWN<COUNT>; ++j) {
    const int slice = warp() / 4 + HALVES * j;
    if (COUNT % HALVES == 0 || slice < COUNT) use(j, slice);
  }
}
using KeySums = float[OWN<SLICES>][2][4];
using PairSums = float[OWN<4>][2][4];

// Calls use(t, s, x) for every number of a warp's sums; slice number j of which is `slice`. t: the row.
template <class Use> static inline void each_number(float (&sums)[2][4], int slice, Use use) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) use(16 * row_slice() + i / 2 * 8 + lane() / 4, 16 * slice + 8 * n + lane() % 4 * 2 + i % 2, sums[n][i]);
}

// sums += a rows, of the tile's 16 rows from `row` on.
template <class Rows> static inline void add_rows(KeySums& sums, const uint32_t (&a)[4], const Rows& rows, int row) {
  each_slice<SLICES>([&](int j, int slice) {
    uint32_t b[4];
    rows.load_b_transposed(b, row, 16 * slice);
    multiply_two(sums[j][0], sums[j][1], a, b);
  });
}

// Products of rows: of tokens t with tokens s, in the slices where there is an s <= t.
template <class Rows, int WIDTH> static inline void add_pairs(PairSums& sums, const Rows& of_t, const Rows& of_s) {
#pragma unroll
  for (int k = 0; k < WIDTH / 16; ++k) {
    uint32_t a[4];
    of_t.load_a(a, 16 * row_slice(), 16 * k);
    each_slice<4>([&](int j, int slice) {
      if (slice > row_slice()) return;
      uint32_t b[4];
      of_s.load_b(b, 16 * slice, 16 * k);
      multiply_two(sums[j][0], sums[j][1], a, b);
    });
  }
}

// A lane's two numbers of an 8 x 8 matrix of the warp's rows, from row `row` of those and `column` on, to a tile.
static inline void put_word(char* tile, int pitch, int row, int column, uint32_t word) {
  *reinterpret_cast<uint32_t*>(tile + ((16 * row_slice() + row + lane() / 4) * pitch + column + lane() % 4 * 2) * 2) = word;
}
static inline void put_pair_of(char* square, int slice, const float (&sums)[2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      put_word(square, Square::PITCH, 8 * h, 16 * slice + 8 * n, pack_pair<Element>(sums[n][2 * h], sums[n][2 * h + 1]));
}
