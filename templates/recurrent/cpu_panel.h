// CPU vocabulary of a recurrence in chunks, in register tiles: a panel of v's features of a chunk, ROWS tokens at a time, where the system of w is solved
// forwards. Part of a template, which has defined before: CHUNK, DELTA, VALUE_GATES.
#pragma once
#include "recurrent/cpu_pairs.h"

using PanelScratch = Scratch;
static inline int64_t state_row(int64_t key) { return key; }  // of a panel's state

// A panel of v's features in a chunk.
struct Panel {
  float* state;  // [state_rows][PANEL]
  int64_t first;
  Floats from_start[VECTORS], decay[VECTORS], decay_rest[VECTORS];  // of gv: over the tokens so far; over the chunk
};

// The part of a row that is in the panel.
static inline Row part_of(const Row& row, int64_t type, int64_t first) {
  const int64_t count = row.count - first < PANEL ? row.count - first : PANEL;
  return {row.data ? static_cast<const char*>(row.data) + first * bytes_of(type) : nullptr, type, count};
}

// w holds v; beyond the tokens 0.
static void load_values(const Stream& stream, const Scratch& s, Panel& panel, int64_t start, int64_t tokens, int64_t rows) {
  const int64_t count = stream.v.count - panel.first;
  if (tokens < rows || count < PANEL) {
    __builtin_memset(s.w, 0, rows * PANEL * sizeof(float));
    if (VALUE_GATES) __builtin_memset(s.v_factor, 0, rows * PANEL * sizeof(float));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = stream.place(start + t);
    load_row(part_of(stream.v.row(at), stream.v.type, panel.first), s.w + t * PANEL, 1);
    if (VALUE_GATES) load_row(part_of(stream.gv.row(at), stream.gv.type, panel.first), s.v_factor + t * PANEL, 1);
  }
  for (int x = 0; VALUE_GATES && x < VECTORS; ++x) {
    Floats sum = {};
    for (int64_t t = 0; t < rows; ++t) {
      float* factor = s.v_factor + t * PANEL + x * LANES;
      const Floats gate = load_floats(factor);
      sum += gate;
      store_floats(factor, exp2_of(gate * LOG2_E));
    }
    const SplitExp decay = split_exp(sum);
    panel.from_start[x] = splat(1.0f), panel.decay[x] = decay.base, panel.decay_rest[x] = decay.rest;
  }
}

// to [ROWS][PANEL] = S^T reads + sum over j < first of weights[:][j] w_j, for a tile of tokens from `first` on.
static __attribute__((noinline)) void read_before(float* to, const Scratch& s, const Panel& panel, const float* reads, const float* weights,
                                                  int64_t first) {
  Tile sum;
  clear_tile(sum);
  add_product(sum, reads + first * s.row, s.row, panel.state, PANEL, s.keys);
  if (VALUE_GATES)
    for (int p = 0; p < ROWS; ++p)
      for (int x = 0; x < VECTORS; ++x) sum[p][x] *= panel.from_start[x];
  add_product(sum, weights + first * COLUMNS, COLUMNS, s.w, PANEL, first);
  store_tile(sum, to, PANEL);
}

// A tile of tokens: w of each, then its output; `seen` and `out` [ROWS][PANEL] are what comes from before the tile.
static __attribute__((noinline)) void solve_tile(const Scratch& s, Panel& panel, const float* betas, int64_t first, const float* seen,
                                                 float* out) {
  for (int x = 0; x < VECTORS; ++x) {
    Floats w[ROWS], factor = splat(1.0f);
    float* rows = s.w + first * PANEL + x * LANES;
#pragma GCC unroll 1
    for (int p = 0; p < ROWS; ++p) {
      const float *on_q = s.on_q + (first + p) * COLUMNS + first, *on_k = s.on_k + (first + p) * COLUMNS + first;
      const int64_t at = p * PANEL + x * LANES;
      if (VALUE_GATES) {
        const Floats own = load_floats(s.v_factor + first * PANEL + at);
        factor *= own;
        for (int j = 0; j < p; ++j) w[j] *= own;
      }
      w[p] = load_floats(rows + p * PANEL);
      Floats before = DELTA ? factor * load_floats(seen + at) : Floats{}, sum = factor * load_floats(out + at);
#pragma GCC unroll 1
      for (int j = 0; j < p; ++j) {
        if (DELTA) before += on_k[j] * w[j];
        sum += on_q[j] * w[j];
      }
      if (DELTA) w[p] = betas[first + p] * (w[p] - before);
      store_floats(out + at, sum + on_q[p] * w[p]);
      if (DELTA && !VALUE_GATES) store_floats(rows + p * PANEL, w[p]);
    }
    if (!VALUE_GATES) continue;
    for (int p = 0; p < ROWS; ++p) store_floats(rows + p * PANEL, w[p]);
    for (float* before = s.w + x * LANES; before < rows; before += PANEL) store_floats(before, load_floats(before) * factor);
    panel.from_start[x] *= factor;
  }
}

static void update_state(const Scratch& s, const Panel& panel, int64_t rows) {
  for (int64_t i = 0; i < s.state_rows; i += ROWS) {
    Tile sum;
#pragma GCC unroll 16
    for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 16
      for (int x = 0; x < VECTORS; ++x) {
        const Floats was = load_floats(panel.state + (i + p) * PANEL + x * LANES);
        Floats left = was * s.decay[i + p] + was * s.decay_rest[i + p];
        if (VALUE_GATES) left = left * panel.decay[x] + left * panel.decay_rest[x];
        sum[p][x] = left;
      }
    add_product(sum, s.kept + i * COLUMNS, COLUMNS, s.w, PANEL, rows);
    store_tile(sum, panel.state + i * PANEL, PANEL);
  }
}

static void run_panel(const Stream& stream, const Scratch& s, Panel& panel, const float* betas, int64_t start, int64_t tokens, int64_t rows,
                      const Out& out) {
  const int64_t tiles_before = panel.first / PANEL * (rows / ROWS), tiles = up_to(stream.v.count, PANEL) / PANEL * (rows / ROWS);
  load_values(stream, s, panel, start, tokens, rows);
  for (int64_t first = 0; first < rows; first += ROWS) {
    const int64_t tile = tiles_before + first / ROWS;
    stream.prefetch(start + CHUNK + CHUNK * tile / tiles, start + CHUNK + CHUNK * (tile + 1) / tiles);
    float seen[ROWS * PANEL], sums[ROWS * PANEL];
    if (DELTA) read_before(seen, s, panel, s.k, s.on_k, first);
    read_before(sums, s, panel, s.q, s.on_q, first);
    solve_tile(s, panel, betas, first, seen, sums);
    for (int p = 0; p < ROWS && first + p < tokens; ++p)
      for (int64_t x = 0; x < PANEL && panel.first + x < stream.v.count; x += LANES)
        out.store(stream.place(start + first + p), panel.first + x, load_floats(sums + p * PANEL + x));
  }
  update_state(s, panel, rows);
}

static void run_stream(const Stream& stream, const Scratch& s, const Out& out) {
  for (int64_t start = 0; start < stream.tokens; start += CHUNK) {
    const int64_t tokens = stream.tokens - start < CHUNK ? stream.tokens - start : CHUNK, rows = up_to(tokens, ROWS);
    float betas[CHUNK] = {};
    for (int64_t t = 0; DELTA && t < tokens; ++t) betas[t] = stream.beta.at(stream.place(start + t));
    prepare(stream, s, start, tokens, rows);
    for (int64_t first = 0; first < stream.v.count; first += PANEL) {
      Panel panel{s.state + first * s.state_rows, first, {}, {}, {}};
      run_panel(stream, s, panel, betas, start, tokens, rows, out);
    }
  }
}
