// GPU vocabulary of attention forward on mma.sync: what a warp makes of its scores and outputs, in registers.
//
// Scores are [tile of 16 rows][8 keys][fragment of C], outputs [tile of 16 rows][8 features][fragment of C]; of a row a thread has what
// lies in [tile][0 or 1]: rows 16 tile + lane / 4 and 8 below.
#pragma once
#include "device/attention/attention_score.h"
#include "device/matrix/fragment.h"

constexpr float LARGE = 4096;  // for a sum of weights; a weight of this size still is exact enough in every type

template <int M, int N> static inline void clear(float (&s)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
}

// Scores grow by the products of one slice of 16 features: `a` of the queries, `b` of the keys.
template <class T, int M, int N, int HALVES>
static inline void multiply_slice(float (&s)[M][N][4], const uint32_t (&a)[M][4], const uint32_t (&b)[HALVES][4]) {
#pragma unroll
  for (int n = 0; n < N; n += 2)
#pragma unroll
    for (int m = 0; m < M; ++m) {
      mma_16x8x16<T>(s[m][n], a[m], b[n / 2][0], b[n / 2][1]);
      mma_16x8x16<T>(s[m][n + 1], a[m], b[n / 2][2], b[n / 2][3]);
    }
}

// The references of the rows whose `sum` is LARGE become the largest scores so far, and denominators and outputs relative to them; other
// rows must not change, or they would depend on keys that they do not see. `unit` takes scores to log 2.
template <int M, int N, int F>
static inline void follow(const float (&s)[M][N][4], float (&o)[M][F][4], float (&reference)[M][2], float (&denominator)[M][2],
                          const float (&sum)[M][2], float unit) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = -INFINITE;
#pragma unroll
      for (int n = 0; n < N; ++n) largest = larger_of(largest, larger_of(s[m][n][2 * h], s[m][n][2 * h + 1]));
      largest = larger_of(reference[m][h], largest_of_fragment_row(largest) * unit);
      if (!(largest_of_fragment_row(sum[m][h]) > LARGE)) largest = reference[m][h];
      const float factor = exp2_of(reference[m][h] - largest);
      reference[m][h] = largest;
      denominator[m][h] *= factor;
#pragma unroll
      for (int f = 0; f < F; ++f) o[m][f][2 * h] *= factor, o[m][f][2 * h + 1] *= factor;
    }
}

// Scores become weights; `sum`: of this thread's columns. Returns whether a row's are too large for its reference.
template <int M, int N>
static inline bool weigh(float (&s)[M][N][4], const float (&reference)[M][2], float (&sum)[M][2], float unit) {
  bool large = false;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[m][h] = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[m][n][i] = exp2_of(s[m][n][i] * unit - reference[m][h]);
          sum[m][h] += s[m][n][i];
        }
      large = large || sum[m][h] > LARGE;
    }
  return large;
}

// Outputs grow by the weights of 16 keys times their values.
template <class T, int M, int N, int F, int ROWS, int COLUMNS>
static inline void add_values(float (&o)[M][F][4], const float (&p)[M][N][4], int n, const Tile<T, ROWS, COLUMNS>& v) {
  uint32_t a[M][4];
#pragma unroll
  for (int m = 0; m < M; ++m) {
    a[m][0] = pack_pair<T>(p[m][n][0], p[m][n][1]);
    a[m][1] = pack_pair<T>(p[m][n][2], p[m][n][3]);
    a[m][2] = pack_pair<T>(p[m][n + 1][0], p[m][n + 1][1]);
    a[m][3] = pack_pair<T>(p[m][n + 1][2], p[m][n + 1][3]);
  }
#pragma unroll
  for (int f = 0; f < F; f += 2) {
    uint32_t b[4];
    v.load_b_transposed(b, 8 * n, 8 * f);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      mma_16x8x16<T>(o[m][f], a[m], b[0], b[1]);
      mma_16x8x16<T>(o[m][f + 1], a[m], b[2], b[3]);
    }
  }
}

// Scores that leave a row's range of keys, or that a mask hides, become -inf; cap and bias are applied. `first`: the block's first key.
template <bool ADJUSTED, bool CAPPED, int M, int N>
static inline void adjust(float (&s)[M][N][4], const ScoreRules& rules, const Rows& rows, const Sequence& sequence, int warp_row, int first) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = warp_row + 16 * m + 8 * h + lane() / 4;
      const RowRules row = rules_of<ADJUSTED>(rules, sequence, rows.range[at], rows.place(at));
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          s[m][n][2 * h + i] = score_of<ADJUSTED, CAPPED>(s[m][n][2 * h + i], rules, row, first + 8 * n + lane() % 4 * 2 + i);
    }
}

// Drops weights by docs/semantics.md, "Dropout": one Philox number serves a row's eight keys; each of the four lanes that hold them makes every fourth
// and hands the words about.
template <int M, int N>
static inline void drop(float (&p)[M][N][4], const ScoreRules& rules, const Rows& rows, const Sequence& sequence, int warp_row, int first) {
  const int quarter = lane() % 4;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowPlace place = rows.place(warp_row + 16 * m + 8 * h + lane() / 4);
      const uint32_t row = static_cast<uint32_t>(sequence.index * rules.heads + place.head);
#pragma unroll
      for (int n = 0; n < N; n += 4) {
        uint32_t mine[4] = {static_cast<uint32_t>(first / 8 + n + quarter), static_cast<uint32_t>(place.token), row, 0};
        philox(mine, rules.seed);
#pragma unroll
        for (int other = 0; other < 4; ++other) {  // by exchange with lane quarter ^ other: my word for it against its word for me
          const int partner = quarter ^ other;
          const uint32_t give = partner == 0 ? mine[0] : partner == 1 ? mine[1] : partner == 2 ? mine[2] : mine[3];
          const uint32_t got = shuffle_xor(give, other);
#pragma unroll
          for (int tile = 0; tile < 4; ++tile)
            if (n + tile < N && tile == partner) {
              if (static_cast<float>(got & 0xffff) < rules.drop_threshold) p[m][n + tile][2 * h] = 0;
              if (static_cast<float>(got >> 16) < rules.drop_threshold) p[m][n + tile][2 * h + 1] = 0;
            }
        }
      }
    }
}

// Outputs, references and denominators before any key: of the sinks, where there are some.
template <int M, int F>
static inline void start_rows(float (&o)[M][F][4], float (&reference)[M][2], float (&denominator)[M][2], const View& sinks,
                              int64_t sinks_type, int64_t heads, const Rows& rows, const Sequence& sequence, int warp_row) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[m][f][i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) reference[m][h] = LOWEST, denominator[m][h] = 0;
  }
  if (!is_given(sinks)) return;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      start_row(sinks, sinks_type, rows.place(warp_row + 16 * m + 8 * h + lane() / 4), heads, sequence, lane() % 4 == 0, reference[m][h],
                denominator[m][h]);
}

template <int M, int F> static inline bool finite(const float (&o)[M][F][4]) {
  float zero = 0;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int f = 0; f < F; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) zero += o[m][f][i] * 0;
  return zero == 0;
}

// The warp's ROWS rows of DV elements, from a tile to `out`, 16 bytes a lane.
template <int ROWS, int DV, int PITCH, class T>
static inline void store_rows(const T* tile, const Heads<T>& out, const Rows& rows, const Sequence& sequence, int warp_row) {
  constexpr int LANES = DV / 8;  // that share a row
  if (WARP % LANES == 0 && rows.evenly()) {
    constexpr int STEP = WARP % LANES == 0 ? WARP / LANES : 1;
    const int row = warp_row + lane() / LANES, column = lane() % LANES * 8;
    const T* from = tile + row * PITCH + column;
    T* to = rows.row_of(out, sequence, 0) + row * out.token_stride + column;
    const int64_t stride = STEP * out.token_stride;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, to += stride)
      if (row + i < rows.count) store_pack(to, load_pack<8>(from + i * PITCH));
    return;
  }
#pragma unroll 1
  for (int i = lane(); i < ROWS * LANES; i += WARP) {
    const int row = warp_row + i / LANES, column = i % LANES * 8;
    if (row < rows.count) store_pack(rows.row_of(out, sequence, row) + column, load_pack<8>(tile + row * PITCH + column));
  }
}

// What the warp has summed, to out and lse; the output goes through the warp's own rows of a tile, so that stores are 16 bytes wide, and
// what lse is made of through the memory of their ranges, free by then, so that each lane stores a row.
template <int DV, int PITCH, int M, int F, class T>
static inline void finish(float (&o)[M][F][4], const float (&reference)[M][2], const float (&denominator)[M][2], T* tile, const Heads<T>& out,
                          const View& lse, const Rows& rows, const Sequence& sequence, int warp_row, float kept) {
  Softmax* const softmax = reinterpret_cast<Softmax*>(rows.range);
  sync_warp();  // its lanes have read these queries and ranges
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = denominator[m][h];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      const int row = warp_row + 16 * m + 8 * h + lane() / 4;
      const float factor = sum == 0 ? 0 : kept * reciprocal(sum);
#pragma unroll
      for (int f = 0; f < F; ++f) {
        const uint32_t pair = pack_pair<T>(o[m][f][2 * h] * factor, o[m][f][2 * h + 1] * factor);
        *reinterpret_cast<uint32_t*>(tile + row * PITCH + 8 * f + lane() % 4 * 2) = pair;
      }
      if (lane() % 4 == 0) softmax[row] = {reference[m][h], sum};
    }
  sync_warp();
  store_rows<M * 16, DV, PITCH>(tile, out, rows, sequence, warp_row);
#pragma unroll 1
  for (int row = warp_row + lane(); is_given(lse) && row < warp_row + M * 16 && row < rows.count; row += WARP)
    store_lse(lse, sequence, rows.place(row), softmax[row].reference, softmax[row].sum);
}
