// CPU vocabulary: what of a chunk of a recurrence does not depend on v: weights of pairs of tokens, and queries and keys with the gates
// from the chunk's begin or to its end. Gates count by exponents of sums of log gates of tokens between two, or by products of single
// tokens' e^gate, so that none is larger than 1 and nothing overflows, however strong the gates are.
#pragma once
#include "recurrent/cpu_chunk.h"

// Rows of q and k from token `start` of the stream on; zeros from `tokens` up to `rows`.
static void load_keys(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows) {
  for (int64_t t = 0; t < rows; ++t) {
    float *q = s.q + t * s.row, *k = s.k + t * s.row;
    if (t < tokens) {
      load_key_row(stream.q.row(stream.place(start + t)), q, stream.scale, stream.l2_norm);
      load_key_row(stream.k.row(stream.place(start + t)), k, 1, stream.l2_norm);
    } else {
      __builtin_memset(q, 0, s.row * sizeof(float));
      __builtin_memset(k, 0, s.row * sizeof(float));
    }
  }
}

// kept[:][column ..] = rows of keys, transposed; `count` rows, and zeros after them up to whole vectors.
static __attribute__((noinline)) void transpose_keys(const float* from, const Scratch& s, int64_t column, int64_t count) {
  for (int64_t t = 0; t < count; t += LANES)
    for (int64_t i = 0; i < s.keys; i += LANES) {
      Floats block[LANES];
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < LANES; ++lane) block[lane] = t + lane < count ? load_floats(from + (t + lane) * s.row + i) : Floats{};
      transpose(block);
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < LANES; ++lane) store_floats(s.kept + (i + lane) * COLUMNS + column + t, block[lane]);
    }
}

// to[t][j] = from_t . kept[:][j] for ROWS tokens t from `first` on and all j < end.
static __attribute__((noinline)) void weigh_pairs(const float* from, const Scratch& s, float* to, int64_t first, int64_t end) {
  for (int64_t j = 0; j < end; j += PANEL) {
    Tile sum;
    clear_tile(sum);
    add_product(sum, from + first * s.row, s.row, s.kept + j, COLUMNS, s.keys);
    store_tile(sum, to + first * COLUMNS + j, COLUMNS);
  }
}

// Sums of log gates from the chunk's begin, each as two floats.
struct GateSums {
  float high[COLUMNS], low[COLUMNS];
$if dual
  float steps[COLUMNS];  // of the tokens; 0 after them
$end
  double total;

  GateSums(const Stream& stream, int64_t start, int64_t tokens, int64_t rows) : total(0) {
    constexpr float NOTHING_LEFT = -200;  // e^-200 is 0 in f32, and so is what it is multiplied with; differences with -inf would be NaN
    float gates[COLUMNS];
    stream.load_gates(start, tokens, gates${dual ? ', steps' : ''});
    for (int64_t t = 0; t < rows; ++t) {
      total += gates[t] < NOTHING_LEFT ? NOTHING_LEFT : gates[t];
      high[t] = static_cast<float>(total);
      low[t] = static_cast<float>(total - high[t]);
    }
    for (int64_t t = rows; t < COLUMNS; ++t) high[t] = low[t] = 0;
  }
  // e^(what tokens after j, up to t, add) for the vector of tokens j; 1 where j is after t.
  Floats between(int64_t t, int64_t j) const {
    const Floats sum = (high[t] - load_floats(high + j)) + (low[t] - load_floats(low + j));
    return exp2_of((sum > Floats{} ? Floats{} : sum) * LOG2_E);
  }
};

static inline void scale_row(float* row, int64_t count, Floats factor) {
  for (int64_t i = 0; i < count; i += LANES) store_floats(row + i, load_floats(row + i) * factor);
}

// Gates of tokens and of the head alone, or none.
static void prepare_token_gates(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows) {
  const GateSums sums(stream, start, tokens, rows);
  transpose_keys(s.k, s, 0, rows);
  for (int64_t t = 0; t < rows; t += ROWS) {
    weigh_pairs(s.q, s, s.on_q, t, t + ROWS);
    if (DELTA) weigh_pairs(s.k, s, s.on_k, t, t + ROWS);
  }
  const SplitExp decay = split_exp(splat(static_cast<float>(sums.total)));
  for (int64_t i = 0; i < s.keys; i += LANES) store_floats(s.decay + i, decay.base), store_floats(s.decay_rest + i, decay.rest);
  if (!stream.gates_tokens()) return;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t j = 0; j <= t; j += LANES) {
      const Floats left = sums.between(t, j);
      float *on_q = s.on_q + t * COLUMNS + j, *on_k = s.on_k + t * COLUMNS + j;
      store_floats(on_q, load_floats(on_q) * left);
      if (DELTA) store_floats(on_k, load_floats(on_k) * left);
    }
    const Floats from_start = exp2_of(splat(sums.high[t] * LOG2_E));
    scale_row(s.q + t * s.row, s.keys, from_start);
    if (DELTA) scale_row(s.k + t * s.row, s.keys, from_start);
  }
  for (int64_t j = 0; j < rows; j += LANES) {
    const Floats to_end = sums.between(rows - 1, j);
    for (int64_t i = 0; i < s.keys; ++i) {
      float* kept = s.kept + i * COLUMNS + j;
      store_floats(kept, load_floats(kept) * to_end);
    }
  }
}

// e^gate of each token and key; how the state decays.
static void load_key_gates(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows) {
  for (int64_t t = 0; t < tokens; ++t) load_row(stream.gk.row(stream.place(start + t)), s.factor + t * s.row, 1);
  float gates[COLUMNS]${dual ? ', steps[COLUMNS]' : ''};
  stream.load_gates(start, tokens, gates${dual ? ', steps' : ''});
  for (int64_t i = 0; i < s.keys; i += LANES) {
    Floats sum = {};
    for (int64_t t = 0; t < tokens; ++t) {
      float* factor = s.factor + t * s.row + i;
      const Floats gate = load_floats(factor) + gates[t];
      sum += gate;
      store_floats(factor, exp2_of(gate * LOG2_E));
    }
    for (int64_t t = tokens; t < rows; ++t) store_floats(s.factor + t * s.row + i, splat(1.0f));
    const SplitExp decay = split_exp(sum);
    store_floats(s.decay + i, decay.base);
    store_floats(s.decay_rest + i, decay.rest);
  }
}

// Weights of the pairs of a tile's tokens.
struct TilePairs {
  float on_q[ROWS][ROWS], on_k[ROWS][ROWS];
};

// Keys of a tile's tokens before token T go from `moving` on past token T, and meet its query and key; then its own key is there, too.
template <int T>
static inline __attribute__((always_inline)) void meet_token(const Scratch& s, int64_t first, TilePairs& pairs) {
  const float *q = s.q + (first + T) * s.row, *k = s.k + (first + T) * s.row, *factor = s.factor + (first + T) * s.row;
  Floats on_q[T + 1], on_k[T + 1];
#pragma GCC unroll 16
  for (int j = 0; j <= T; ++j) on_q[j] = on_k[j] = Floats{};
#pragma GCC unroll 1
  for (int64_t i = 0; i < s.keys; i += LANES) {
    const Floats query = load_floats(q + i), key = load_floats(k + i), left = load_floats(factor + i);
    on_q[T] += query * key;
    store_floats(s.moving + T * s.row + i, key);
#pragma GCC unroll 16
    for (int j = 0; j < T; ++j) {
      float* moving = s.moving + j * s.row + i;
      const Floats x = load_floats(moving) * left;
      store_floats(moving, x);
      on_q[j] += query * x;
      if (DELTA) on_k[j] += key * x;
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j <= T; ++j) {
    pairs.on_q[T][j] = sum_of(on_q[j]);
    if (DELTA) pairs.on_k[T][j] = sum_of(on_k[j]);
  }
}
template <int T>
static inline __attribute__((always_inline)) void meet_tokens(const Scratch& s, int64_t first, TilePairs& pairs) {
  meet_token<T>(s, first, pairs);
  if constexpr (T + 1 < ROWS) meet_tokens<T + 1>(s, first, pairs);
}

// A tile's rows of q and k with the factors since its first token.
static void read_in_tile(const Scratch& s, int64_t first) {
  for (int64_t i = 0; i < s.keys; i += LANES) {
    Floats product = splat(1.0f);
    for (int64_t t = first; t < first + ROWS; ++t) {
      product *= load_floats(s.factor + t * s.row + i);
      float *q = s.q + t * s.row + i, *k = s.k + t * s.row + i;
      store_floats(q, load_floats(q) * product);
      if (DELTA) store_floats(k, load_floats(k) * product);
    }
    store_floats(s.of_tile + i, product);
  }
}

// The same rows with the factors since the chunk's begin; keys of tokens before the tile with those up to its end.
static void pass_tile(const Scratch& s, int64_t first) {
  for (int64_t i = 0; i < s.keys; i += LANES) {
    const Floats before = load_floats(s.from_start + i);
    for (int64_t t = first; t < first + ROWS; ++t) {
      float *q = s.q + t * s.row + i, *k = s.k + t * s.row + i;
      store_floats(q, load_floats(q) * before);
      if (DELTA) store_floats(k, load_floats(k) * before);
    }
    store_floats(s.from_start + i, before * load_floats(s.of_tile + i));
  }
  for (int64_t i = 0; i < s.keys; ++i) scale_row(s.kept + i * COLUMNS, first, splat(s.of_tile[i]));
}

// Gates of keys, tile by tile of tokens: pairs within it meet one by one; those with tokens before it are a product of queries with the
// factors since the tile's first token, and keys with those up to it.
static void prepare_key_gates(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows) {
  load_key_gates(stream, s, start, tokens, rows);
  for (int64_t i = 0; i < s.keys; i += LANES) store_floats(s.from_start + i, splat(1.0f));
  for (int64_t first = 0; first < rows; first += ROWS) {
    TilePairs pairs;
    meet_tokens<0>(s, first, pairs);
    read_in_tile(s, first);
    weigh_pairs(s.q, s, s.on_q, first, first);
    if (DELTA) weigh_pairs(s.k, s, s.on_k, first, first);
    for (int64_t t = 0; t < ROWS; ++t)
      for (int64_t j = 0; j <= t; ++j) {
        s.on_q[(first + t) * COLUMNS + first + j] = pairs.on_q[t][j];
        if (DELTA) s.on_k[(first + t) * COLUMNS + first + j] = pairs.on_k[t][j];
      }
    pass_tile(s, first);
    transpose_keys(s.moving, s, first, ROWS);
  }
}

static void prepare(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows) {
  load_keys(stream, s, start, tokens, rows);
  if (stream.gk.data)
    prepare_key_gates(stream, s, start, tokens, rows);
  else
    prepare_token_gates(stream, s, start, tokens, rows);
}
