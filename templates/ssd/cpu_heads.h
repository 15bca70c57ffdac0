// CPU vocabulary of ssd in chunks, in register tiles: heads of a group share rows of C and Bm and the products of their pairs, which stay as they
// are; a head's steps and gates are factors of weights, of what rows read, and of the values that a state takes in.
#pragma once
#include "recurrent/cpu_pairs.h"

using PanelScratch = Scratch;
static inline int64_t state_row(int64_t key) { return key; }  // of a panel's state
static inline void begin_heads(const PanelScratch&, int64_t) {}
static inline void end_heads() {}

// Of a head's tokens in a chunk: what is left of the state before it; the step, times what is left at the chunk's end.
struct TokenFactors {
  float from_start[COLUMNS], to_end[COLUMNS];
};

// Of all heads: s.q and s.kept hold rows of C and Bm, s.on_k products of their pairs.
static void prepare_group(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows) {
  load_keys(stream, s, start, tokens, rows);
  transpose_keys(s.k, s, 0, rows);
  for (int64_t t = 0; t < rows; t += ROWS) weigh_pairs(s.q, s, s.on_k, t, t + ROWS);
}

// Of one head: s.on_q gets what x_j counts for token t.
static void prepare_head(const Stream& stream, const Scratch& s, TokenFactors& factors, int64_t start, int64_t tokens, int64_t rows) {
  const GateSums sums(stream, start, tokens, rows);
  const SplitExp decay = split_exp(splat(static_cast<float>(sums.total)));
  for (int64_t i = 0; i < s.state_rows; i += LANES) store_floats(s.decay + i, decay.base), store_floats(s.decay_rest + i, decay.rest);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t j = 0; j <= t; j += LANES) {
      const Floats factor = sums.between(t, j) * load_floats(sums.steps + j);
      store_floats(s.on_q + t * COLUMNS + j, load_floats(s.on_k + t * COLUMNS + j) * factor);
    }
  for (int64_t t = 0; t < rows; t += LANES) {
    store_floats(factors.from_start + t, exp2_of(load_floats(sums.high + t) * LOG2_E));
    store_floats(factors.to_end + t, sums.between(rows - 1, t) * load_floats(sums.steps + t));
  }
}

// w: the panel's values; v_factor: with the factors to the chunk's end. Zeros beyond tokens and values.
static void load_values(const Stream& stream, const Scratch& s, const TokenFactors& factors, int64_t first, int64_t start, int64_t tokens,
                        int64_t rows) {
  const int64_t count = stream.v.count - first < PANEL ? stream.v.count - first : PANEL;
  if (tokens < rows || count < PANEL) __builtin_memset(s.w, 0, rows * PANEL * sizeof(float));
  for (int64_t t = 0; t < tokens; ++t) {
    const Row row = stream.v.row(start + t);
    load_row({static_cast<const char*>(row.data) + first * bytes_of(row.type), row.type, count}, s.w + t * PANEL, 1);
  }
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t at = t * PANEL; at < (t + 1) * PANEL; at += LANES) store_floats(s.v_factor + at, load_floats(s.w + at) * factors.to_end[t]);
}

// to [ROWS][PANEL]: what a tile of tokens from `first` on reads of the state, and of tokens up to each.
static __attribute__((noinline)) void read_tile(float* to, const Scratch& s, const float* state, const float* from_start, int64_t first) {
  Tile sum;
  clear_tile(sum);
  add_product(sum, s.q + first * s.row, s.row, state, PANEL, s.keys);
#pragma GCC unroll 16
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 4
    for (int x = 0; x < VECTORS; ++x) sum[p][x] *= from_start[first + p];
  const float *weights = s.on_q + first * COLUMNS, *w = s.w + first * PANEL;
  add_product(sum, weights, COLUMNS, s.w, PANEL, first);
#pragma GCC unroll 16
  for (int j = 0; j < ROWS; ++j)
#pragma GCC unroll 16
    for (int p = j; p < ROWS; ++p)
#pragma GCC unroll 4
      for (int x = 0; x < VECTORS; ++x) sum[p][x] += weights[p * COLUMNS + first + j] * load_floats(w + j * PANEL + x * LANES);
  store_tile(sum, to, PANEL);
}

// The chunk's sums by themselves: so a long sequence's state is rounded once a chunk.
static __attribute__((noinline)) void update_state(const Scratch& s, float* state, int64_t rows) {
  for (int64_t i = 0; i < s.state_rows; i += ROWS) {
    Tile sum;
    clear_tile(sum);
    add_product(sum, s.kept + i * COLUMNS, COLUMNS, s.v_factor, PANEL, rows);
#pragma GCC unroll 16
    for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 4
      for (int x = 0; x < VECTORS; ++x) {
        float* at = state + (i + p) * PANEL + x * LANES;
        const Floats was = load_floats(at);
        store_floats(at, was * s.decay[i + p] + (was * s.decay_rest[i + p] + sum[p][x]));
      }
  }
}

// All panels of a head; `state` is its first one's.
static void run_head(const Stream& stream, const Scratch& s, float* state, int64_t start, int64_t tokens, int64_t rows, const Out& out) {
  TokenFactors factors;
  prepare_head(stream, s, factors, start, tokens, rows);
  const int64_t tiles = up_to(stream.v.count, PANEL) / PANEL * (rows / ROWS);
  int64_t tile = 0;
  for (int64_t panel = 0; panel < stream.v.count; panel += PANEL, state += s.state_rows * PANEL) {
    load_values(stream, s, factors, panel, start, tokens, rows);
    for (int64_t first = 0; first < rows; first += ROWS, ++tile) {
      stream.prefetch(start + CHUNK + CHUNK * tile / tiles, start + CHUNK + CHUNK * (tile + 1) / tiles);
      float sums[ROWS * PANEL];
      read_tile(sums, s, state, factors.from_start, first);
      for (int p = 0; p < ROWS && first + p < tokens; ++p)
        for (int64_t x = 0; x < PANEL && panel + x < stream.v.count; x += LANES)
          out.store(start + first + p, panel + x, load_floats(sums + p * PANEL + x));
    }
    update_state(s, state, rows);
  }
}
