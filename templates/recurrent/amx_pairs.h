// CPU vocabulary: what of a chunk of a recurrence does not depend on v, as operands on AMX tiles: rows of q and k, keys along the tokens,
// weights of pairs of tokens. Rows stay as they came, bf16, and factors of single tokens are applied to what products give; with gates of
// keys they are made in f32 first (cpu_pairs.h). What reaches the state, which is f32, has operands in parts of bf16 (amx_parts.h). Part of a
// template, which has defined before: CHUNK, DELTA.
#pragma once
#include "device/matrix/amx_parts.h"
#include "recurrent/cpu_pairs.h"

constexpr int64_t BLOCKS = CHUNK / SIDE;
// Parts of operands: of w and of states, whose errors the delta rule makes larger, and of outputs.
constexpr int64_t STATE_PARTS = DELTA ? 3 : 2, OUT_PARTS = DELTA ? 2 : 1;
static_assert(PANEL == SIDE && CHUNK % SIDE == 0 && SIDE % ROWS == 0);

// The scratch of a work item. `steps`: of SIDE key features. A square [n][m] has pairs of tiles, m steps for each n.
struct PanelScratch : Scratch {
  int64_t steps;
  float *q_lines, *k_lines;    // [BLOCKS][steps]: tokens are lines
  Parts q_weights, k_weights;  // [BLOCKS][BLOCKS]: tokens are lines, tokens up to them steps: what w_j counts; of a block's own tokens only for q
  float* k_columns;            // [BLOCKS][steps]: pairs of features are lines, tokens columns
  Parts kept_lines;            // [steps][BLOCKS]: features are lines, even ones of SIDE, then odd ones; gates of keys up to the chunk's end
  Parts state_pairs;           // [panel][steps]: pairs of features are lines
  Parts w_pairs, kept_pairs;   // [BLOCKS]: pairs of tokens are lines: of w, and of w with the factors to the chunk's end
  float *read_q, *read_k;      // [CHUNK][PANEL]: what q and k read from the state
  float query_factor[CHUNK], key_factor[CHUNK], from_start[CHUNK], to_end[CHUNK];

  static int64_t own_floats(int64_t count, int64_t width) {
    return (up_to(count, SIDE) * ((3 + STATE_PARTS) * CHUNK + STATE_PARTS * width) + (STATE_PARTS + OUT_PARTS) * CHUNK * CHUNK) / 2 +
           (2 * 16 * STATE_PARTS + 2 * PANEL) * CHUNK;
  }
  // keyed: there are gates of keys; exact: w to the chunk's end is v.
  PanelScratch(float* next, int64_t count, int64_t width, bool keyed, bool exact)
      : Scratch(next + own_floats(count, width), count, width), steps(up_to(count, SIDE) / SIDE) {
    const auto take = [&next](int64_t pairs) { return (next += pairs * PAIR) - pairs * PAIR; };
    const auto take_parts = [&](int64_t pairs, int64_t most, int64_t count) {
      return Parts{take(most * pairs), count, pairs * PAIR};
    };
    q_lines = take(BLOCKS * steps), k_lines = take(BLOCKS * steps), k_columns = take(BLOCKS * steps);
    kept_lines = take_parts(BLOCKS * steps, STATE_PARTS, keyed ? STATE_PARTS : 1);
    q_weights = take_parts(BLOCKS * BLOCKS, OUT_PARTS, OUT_PARTS), k_weights = take_parts(BLOCKS * BLOCKS, STATE_PARTS, STATE_PARTS);
    state_pairs = take_parts(width / PANEL * steps, STATE_PARTS, DELTA ? STATE_PARTS : 1);
    w_pairs = take_parts(BLOCKS, STATE_PARTS, DELTA ? STATE_PARTS : 1), kept_pairs = take_parts(BLOCKS, STATE_PARTS, exact ? 1 : STATE_PARTS);
    read_q = take(2 * BLOCKS), read_k = take(2 * BLOCKS);
  }
};

// Where in a square line `line` is; steps from `step` on.
static inline int64_t line_at(int64_t steps, int64_t line, int64_t step) {
  return (line / SIDE * steps + step / SIDE) * PAIR + line % SIDE * LANES;
}

// A row's numbers; returns the sum of their squares.
static float copy_line(const Row& row, float* lines, int64_t steps, int64_t t) {
  Floats squares = {};
  for (int64_t i = 0; i < steps * SIDE; i += SIDE) {
    const Floats line = row.data ? load_line(static_cast<const bfloat16*>(row.data) + i, row.count - i) : Floats{};
    store_floats(lines + line_at(steps, t, i), line);
    const Words bits = reinterpret_cast<Words>(line);
    const Floats even = reinterpret_cast<Floats>(bits << 16), odd = reinterpret_cast<Floats>(bits & 0xffff0000);
    squares += even * even + odd * odd;
  }
  return sum_of(squares);
}

// Rows as they came, their norms among the factors.
static void load_lines(const Stream& stream, PanelScratch& s, int64_t start, int64_t tokens, int64_t rows) {
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t at = t < tokens ? stream.place(start + t) : 0;
    const Row none{nullptr, 2, stream.q.count};  // 2: bf16
    const float q = copy_line(t < tokens ? stream.q.row(at) : none, s.q_lines, s.steps, t);
    const float k = copy_line(t < tokens ? stream.k.row(at) : none, s.k_lines, s.steps, t);
    s.query_factor[t] = stream.scale * (stream.l2_norm ? rsqrt_of(q + 1e-6f) : 1);
    s.key_factor[t] = stream.l2_norm ? rsqrt_of(k + 1e-6f) : 1;
  }
}

// A tile's words turned.
static inline void turn_tile(float* to, const float* from) {
  Floats lines[LANES];
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) lines[i] = load_floats(from + i * LANES);
  store_tile(to, lines, true);
}

// kept_lines of SIDE tokens and features, from their pair of tiles in k_lines.
static void keep_keys(float* to, const float* lines) {
  for (int odd = 0; odd < 2; ++odd) {
    Floats pairs[LANES];
#pragma GCC unroll 16
    for (int p = 0; p < LANES; ++p) {
      const Words first = reinterpret_cast<Words>(load_floats(lines + 2 * p * LANES)),
                  second = reinterpret_cast<Words>(load_floats(lines + (2 * p + 1) * LANES));
      pairs[p] = reinterpret_cast<Floats>(odd ? first >> 16 | (second & 0xffff0000) : (first & 0xffff) | second << 16);
    }
    store_tile(to + odd * TILE_WORDS, pairs, true);
  }
}

// on_q and on_k, without factors.
static void multiply_pairs(const PanelScratch& s, const float* lines, float* to, int64_t rows) {
  for (int64_t t = 0; t < rows; t += SIDE)
    for (int64_t j = 0; j <= t; j += SIDE) {
      Square::zero();
      multiply_steps(lines + t / SIDE * s.steps * PAIR, s.k_columns + j / SIDE * s.steps * PAIR, s.steps);
      Square::store_rows(to + t * COLUMNS + j, COLUMNS);
    }
}

// Rows and products of their pairs: what gates of tokens do not change.
static void prepare_lines(const Stream& stream, PanelScratch& s, int64_t start, int64_t tokens, int64_t rows) {
  load_lines(stream, s, start, tokens, rows);
  for (int64_t block = 0; block < rows / SIDE; ++block)
    for (int64_t i = 0; i < s.steps; ++i) {
      const int64_t at = (block * s.steps + i) * PAIR;
      for (int64_t tile = at; tile < at + PAIR; tile += TILE_WORDS) turn_tile(s.k_columns + tile, s.k_lines + tile);
      keep_keys(s.kept_lines.data + (i * BLOCKS + block) * PAIR, s.k_lines + at);
    }
  multiply_pairs(s, s.q_lines, s.on_q, rows);
  if (DELTA) multiply_pairs(s, s.k_lines, s.on_k, rows);
}

// Factors of gates of tokens and of the head alone, or of none.
static void find_token_factors(PanelScratch& s, const GateSums& sums, int64_t rows) {
  const SplitExp decay = split_exp(splat(static_cast<float>(sums.total)));
  for (int64_t i = 0; i < s.keys; i += LANES) store_floats(s.decay + i, decay.base), store_floats(s.decay_rest + i, decay.rest);
  for (int64_t t = 0; t < rows; t += LANES) {
    store_floats(s.from_start + t, exp2_of(load_floats(sums.high + t) * LOG2_E));
    store_floats(s.to_end + t, sums.between(rows - 1, t) * load_floats(s.key_factor + t));
  }
}

// Rows with gates of keys.
static void store_lines(const PanelScratch& s, const float* from, Parts lines, int64_t rows) {
  const auto part = [&](const float* row, int64_t i) { return i < s.keys ? load_floats(row + i) : Floats{}; };
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < s.steps * SIDE; i += SIDE)
      store_line(lines + line_at(s.steps, t, i), part(from + t * s.row, i), part(from + t * s.row, i + LANES));
}

// Not with DELTA.
static void prepare_key_operands(const Stream& stream, PanelScratch& s, int64_t start, int64_t tokens, int64_t rows) {
  load_keys(stream, s, start, tokens, rows);
  prepare_key_gates(stream, s, start, tokens, rows);
  store_lines(s, s.q, {s.q_lines, 1, 0}, rows);
  for (int64_t i = 0; i < s.steps * SIDE; ++i)
    for (int64_t t = 0; t < rows; t += SIDE) {
      const float* kept = s.kept + i * COLUMNS + t;
      const bool there = i < s.keys;
      store_line(s.kept_lines + line_at(BLOCKS, i / SIDE * SIDE + i % 2 * 16 + i % SIDE / 2, t), there ? load_floats(kept) : Floats{},
                 there ? load_floats(kept + LANES) : Floats{});
    }
  for (int64_t t = 0; t < rows; ++t) s.query_factor[t] = s.key_factor[t] = s.from_start[t] = s.to_end[t] = 1;
}

// on_q and on_k get the factors of token j and become operands; what a token does not see is 0. Of the tokens of a block on_k is what w_j adds to
// w_t of the same block, in f32.
static void weigh_operands(const PanelScratch& s, const GateSums& sums, const float* betas, bool gated, int64_t rows) {
  Integers lane;
  for (int i = 0; i < LANES; ++i) lane[i] = i;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t j = 0; j <= t; j += SIDE) {
      Floats on_q[2] = {}, on_k[2] = {};
      for (int64_t half = 0; half < 2 && j + half * LANES <= t; ++half) {
        const int64_t at = j + half * LANES;
        const Integers number = lane + static_cast<int32_t>(at);
        const Floats factor = gated ? sums.between(t, at) * load_floats(s.key_factor + at) : load_floats(s.key_factor + at);
        on_q[half] = number <= static_cast<int32_t>(t) ? load_floats(s.on_q + t * COLUMNS + at) * factor : Floats{};
        if (DELTA) on_k[half] = number < static_cast<int32_t>(t) ? load_floats(s.on_k + t * COLUMNS + at) * factor : Floats{};
      }
      store_line(s.q_weights + line_at(BLOCKS, t, j), on_q[0], on_q[1]);
      if (!DELTA) continue;
      if (j + SIDE <= t) {
        store_line(s.k_weights + line_at(BLOCKS, t, j), on_k[0], on_k[1]);
        continue;
      }
      const float factor = -betas[t] * s.key_factor[t];
      for (int64_t half = 0; half < 2; ++half) store_floats(s.on_k + t * COLUMNS + j + half * LANES, on_k[half] * factor);
    }
}

static void prepare_operands(const Stream& stream, PanelScratch& s, const float* betas, int64_t start, int64_t tokens, int64_t rows) {
  const GateSums sums(stream, start, tokens, rows);
  const bool of_keys = stream.gk.data;
  if (of_keys)
    prepare_key_operands(stream, s, start, tokens, rows);
  else
    prepare_lines(stream, s, start, tokens, rows), find_token_factors(s, sums, rows);
  weigh_operands(s, sums, betas, !of_keys && stream.gates_tokens(), rows);
}
