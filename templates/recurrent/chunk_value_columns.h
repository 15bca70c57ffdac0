// GPU vocabulary of the chunked recurrence's gradient with gates of values: columns of the gradients of keys and of queries. Part of
// backward.chunk_values.gpu.cu, in whose exchanged problem they are gradients of values and what queries read.
#pragma once

// A warp's columns are of one or the other. Values get what flows into the state after the chunk, and what the chunk's later tokens read;
// queries read the state before the chunk, and what its earlier tokens wrote.
$if narrow  // halves: times units, which plan (of slice x) and row_units know
static inline void store_columns(SharedPointer shared, int place, int start, int token, int count, int values, const GradientRows& of_values, const GradientRows& read,
                                 const KeyGradientPlan& plan, const RowUnits& row_units, int x) {
$else
static inline void store_columns(SharedPointer shared, int place, int start, int token, int count, int values, const GradientRows& of_values, const GradientRows& read) {
$end
  const int row = 16 * row_slice();
  each_slice<COLUMNS / 8>([&](int, int slice) {
    const bool reads = slice >= COLUMNS / 16;
    const int column = 16 * (slice % (COLUMNS / 16));
    const KeyTile rows{shared + (reads ? At::QUERIES_BEFORE : At::KEYS_AFTER)};
    const StateTile state{shared + place + (reads ? At::BEFORE : At::AFTER)};
    const ValueTile others{shared + place + (reads ? At::WRITTEN : 0)};
    const Square weights{shared + At::WEIGHTS};
    float sums[2][4] = {};
    uint32_t a[4], b[4];
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      rows.load_a(a, row, 16 * k);
      state.load_b(b, column, 16 * k);
      multiply_two(sums[0], sums[1], a, b);
    }
$if narrow
    const float inverse = (reads ? row_units.scaled_queries : row_units.keys) * plan.unit(reads ? 0 : 1, x, slice % (COLUMNS / 16));
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] *= inverse;
$end
    const int first = reads ? 0 : row_slice(), last = reads ? row_slice() : 3;
#pragma unroll 1
    for (int part = first; part <= last; ++part) {
      if (reads) weights.load_a(a, row, 16 * part);
      else load_a_transposed(a, weights, 16 * part, row);
      others.load_b_transposed(b, 16 * part, column);
$if narrow
      float own[2][4] = {};
      multiply_two(own[0], own[1], a, b);
      add_times(sums, own, row_units.of_pairs());
$else
      multiply_two(sums[0], sums[1], a, b);
$end
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int t = token + row + 8 * h + lane() / 4, value = start + column + 8 * n + lane() % 4 * 2;
        if (t < count && value < values) (reads ? read : of_values).store_two(t, value, sums[n][2 * h], sums[n][2 * h + 1]);
      }
  });
}
