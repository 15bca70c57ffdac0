// CPU vocabulary: ROWS query rows against keys and values of one head that lie anywhere in memory, BLOCK keys at a time; and the sum of
// what several work items have computed of a row.
//
// ROWS rows at a time meet TOKENS keys: their LANES products are summed by lanes into one vector, whose lane r * TOKENS + t is the score of
// row r and key t. Maxima and sums stay in that order until the end of a block. Scores are in units of log 2.
#pragma once
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "device/number/narrow.h"
#include "device/tile/row_sums.h"
#include "device/number/widen_bytes.h"

// LANES features of a row of FEATURES from `chunk` on; past the last feature, zeros.
template <int64_t FEATURES, class T> static inline __attribute__((always_inline)) Floats load_chunk(const T* row, int64_t chunk) {
  if constexpr (FEATURES % LANES != 0)
    if (chunk == FEATURES / LANES) return load_some(row + chunk * LANES, FEATURES % LANES);
  return load_floats(row + chunk * LANES);
}

template <class T, int64_t FEATURES> static inline __attribute__((always_inline)) void prefetch_row(const T* row) {
#pragma GCC unroll 16
  for (int64_t d = 0; d < FEATURES; d += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + d, 0, 3);
}

template <int64_t FEATURES, class T> static void store_row(const float* values, float factor, T* to) {
  for (int64_t d = 0; d < FEATURES; d += LANES) store_some(to + d, load_floats(values + d) * factor, FEATURES - d);
}

// The rows and their running softmax, in the worker's scratch. D, DV: features of a key and of a value.
template <class Cached, int64_t D, int64_t DV, int ROWS, int BLOCK> struct DecodeRows {
  static constexpr int TOKENS = LANES / ROWS;  // keys of a vector of scores
  static constexpr int64_t CHUNKS = (D + LANES - 1) / LANES, VALUE_CHUNKS = (DV + LANES - 1) / LANES;
  static constexpr int64_t PADDED = CHUNKS * LANES, VALUE_PADDED = VALUE_CHUNKS * LANES;
  static constexpr int AT_ONCE = (LANES == 16 ? 16 : 8) / ROWS;  // vectors of each row's output that are in registers at once
  static_assert(ROWS * TOKENS == LANES && AT_ONCE > 0 && BLOCK % TOKENS == 0);

  float query[ROWS][PADDED], output[ROWS][VALUE_PADDED];
  float maximum[LANES], sum[LANES];  // by lane: of row lane / TOKENS; sums are parts of the row's

  // Where the tokens of a block lie; places past `count` repeat the last.
  struct Places {
    const Cached *key[BLOCK], *value[BLOCK];
    int64_t count;

    void repeat_last() {
      for (int64_t i = count; i < BLOCK && i > 0; ++i) key[i] = key[i - 1], value[i] = value[i - 1];
    }
  };

  // `row`: of a query, or null: a padding row.
  template <class T> void load_query(int r, const T* row) {
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) store_floats(query[r] + chunk * LANES, row ? load_chunk<D>(row, chunk) : Floats{});
  }

  // Sinks join the row once: in one part of its keys.
  void start(int r, const Sinks& sinks) {
    float most = -INFINITE, all = 0;
    for (int64_t i = 0; i < sinks.count; ++i) most = sinks[i] * LOG2_E > most ? sinks[i] * LOG2_E : most;
    for (int64_t i = 0; i < sinks.count; ++i) all += exp2_of(splat(sinks[i] * LOG2_E - (most == -INFINITE ? 0 : most)))[0];
    for (int t = 0; t < TOKENS; ++t) maximum[r * TOKENS + t] = most, sum[r * TOKENS + t] = t == 0 ? all : 0;
    __builtin_memset(output[r], 0, sizeof output[r]);
  }

  // Scores of a vector's worth of keys, unscaled.
  inline __attribute__((always_inline)) Floats products(const Cached* const* keys) const {
    Floats sums[LANES] = {};
#pragma GCC unroll 1
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) {
      Floats q[ROWS];
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r) q[r] = load_floats(query[r] + chunk * LANES);
#pragma GCC unroll 16
      for (int t = 0; t < TOKENS; ++t) {
        const Floats k = load_chunk<D>(keys[t], chunk);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) sums[r * TOKENS + t] += q[r] * k;
      }
    }
    return row_sums(sums);
  }

  // Fills scores with the block's scores, as `adjust(products, key of the block)` makes them; returns the largest by lane.
  template <class Adjust> Floats score_block(const Places& places, const Places& next, float* scores, Adjust adjust) const {
    Floats most = splat(-INFINITE);
    for (int64_t i = 0; i < places.count; i += TOKENS) {
      for (int t = 0; t < TOKENS; ++t)
        if (i + t < next.count) prefetch_row<Cached, D>(next.key[i + t]);
      const Floats s = adjust(products(places.key + i), i);
      store_floats(scores + i * ROWS, s);
      most = larger_of(s, most);
    }
    return most;
  }

  // The largest of each row, in all its lanes.
  static inline Floats spread_rows(Floats most) {
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
      float largest = most[r * TOKENS];
      for (int t = 1; t < TOKENS; ++t) largest = most[r * TOKENS + t] > largest ? most[r * TOKENS + t] : largest;
      for (int t = 0; t < TOKENS; ++t) most[r * TOKENS + t] = largest;
    }
    return most;
  }

  // Scores become weights relative to the rows' maxima, which follow.
  void weigh_block(Floats most, int64_t count, float* scores) {
    const Floats before = load_floats(maximum), now = larger_of(spread_rows(most), before);
    const Floats base = now == splat(-INFINITE) ? Floats{} : now;
    Floats all = load_floats(sum);
    if (any(now > before)) {
      const Floats factor = exp2_of(before - base);
      all *= factor;
      for (int r = 0; r < ROWS; ++r)
        for (int64_t d = 0; d < VALUE_PADDED; d += LANES) store_floats(output[r] + d, load_floats(output[r] + d) * factor[r * TOKENS]);
      store_floats(maximum, now);
    }
    for (int64_t i = 0; i < count; i += TOKENS) {
      const Floats weight = exp2_of(load_floats(scores + i * ROWS) - base);
      store_floats(scores + i * ROWS, weight);
      all += weight;
    }
    store_floats(sum, all);
  }

  // output[..][chunk ... chunk + COUNT) += weights * values. AHEAD: asks for the next block's values meanwhile. GUARDED: a value behind a
  // weight of 0 counts as 0 even if it is NaN; it may be of a key that the row does not see.
  template <int COUNT, bool AHEAD, bool GUARDED>
  inline __attribute__((always_inline)) void add_chunks(const Places& places, const Places& next, const float* weights, int64_t chunk) {
    Floats sums[ROWS][COUNT];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) sums[r][c] = load_floats(output[r] + (chunk + c) * LANES);
    for (int64_t i = 0; i < places.count; ++i) {
      if (AHEAD && i < next.count) prefetch_row<Cached, DV>(next.value[i]);
      const float* weight = weights + i / TOKENS * LANES + i % TOKENS;
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) {
        const Floats v = load_chunk<DV>(places.value[i], chunk + c);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r)
          if (!GUARDED || weight[r * TOKENS] != 0) sums[r][c] += v * weight[r * TOKENS];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) store_floats(output[r] + (chunk + c) * LANES, sums[r][c]);
  }

  template <bool GUARDED> void add_values(const Places& places, const Places& next, const float* weights) {
    constexpr int FIRST = VALUE_CHUNKS < AT_ONCE ? VALUE_CHUNKS : AT_ONCE;
    add_chunks<FIRST, true, GUARDED>(places, next, weights, 0);
    int64_t chunk = FIRST;
    for (; chunk + AT_ONCE <= VALUE_CHUNKS; chunk += AT_ONCE) add_chunks<AT_ONCE, false, GUARDED>(places, next, weights, chunk);
    if constexpr (VALUE_CHUNKS > AT_ONCE && VALUE_CHUNKS % AT_ONCE != 0)
      add_chunks<VALUE_CHUNKS % AT_ONCE, false, GUARDED>(places, next, weights, chunk);
  }

  float sum_of(int r) const {
    float all = 0;
    for (int t = 0; t < TOKENS; ++t) all += sum[r * TOKENS + t];
    return all;
  }

  // A part of a row: its maximum, its sum of weights, its weighted values.
  static constexpr int64_t PART = DV + 2;
  void store_part(int r, float* to) const {
    to[0] = maximum[r * TOKENS], to[1] = sum_of(r);
    if (to[1] != 0) store_row<DV>(output[r], 1, to + 2);
  }
  // The parts of a row, one after another, put together.
  struct Whole {
    alignas(64) float values[VALUE_PADDED] = {};
    float maximum = -INFINITE, sum = 0;

    Whole(const float* from, int64_t parts) {
      for (int64_t part = 0; part < parts; ++part) maximum = from[part * PART] > maximum ? from[part * PART] : maximum;
      for (int64_t part = 0; part < parts; ++part) {
        const float* at = from + part * PART;
        if (at[1] == 0) continue;  // saw nothing, and wrote no values
        const float factor = exp2_of(splat(at[0] - (maximum == -INFINITE ? 0 : maximum)))[0];
        // at[0] of -inf has a sum only where a score is NaN
        sum += at[0] == -INFINITE ? at[1] : at[1] * factor;
        for (int64_t chunk = 0; chunk < VALUE_CHUNKS; ++chunk)
          store_floats(values + chunk * LANES, load_floats(values + chunk * LANES) + load_chunk<DV>(at + 2, chunk) * factor);
      }
    }
  };
};

// What a call does to scores: unit makes them units of log 2; with a cap, unit is without log2(e).
struct Scoring {
  float unit, cap;
  Scoring(float scale, float soft_cap) : unit(soft_cap > 0 ? scale : scale * LOG2_E), cap(soft_cap) {}
  Floats operator()(Floats products) const {
    const Floats s = products * unit;
    return cap > 0 ? tanh_of(s / cap) * (cap * LOG2_E) : s;
  }
};

static inline float lse_of(float maximum, float sum) { return (maximum == -INFINITE ? 0 : maximum * LN_2) + log_of(splat(sum))[0]; }

struct Range {
  int64_t begin, end;
};

// Part `part` of `parts` of the keys [first, end), whole vectors of scores but for the last.
static Range part_of(int64_t first, int64_t end, int64_t part, int64_t parts) {
  const int64_t share = ((end - first + parts - 1) / parts + 15) / 16 * 16;
  const int64_t begin = first + part * share < end ? first + part * share : end;
  return {begin, begin + share < end ? begin + share : end};
}
