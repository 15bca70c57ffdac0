// CPU vocabulary of mla_decode: GROUP query rows against tiles of keys. Rows lie across the lanes of vectors, so that a row's softmax is a lane's: a key's
// feature meets all rows of a vector at once, and nothing is summed over lanes. Scores are in units of log 2. Part of a template, which has defined
// before: R, VECTORS, AT_ONCE, BLOCK; and KeyTile.
#pragma once
#include "device/attention/decode_rows.h"

constexpr int GROUP = VECTORS * LANES;
constexpr int64_t STRETCH = 192;  // features of queries at a time: with a few keys they stay in the first cache

typedef float Scores[BLOCK][GROUP];  // of a group's rows for a tile's keys; then weights

struct alignas(64) RowGroup {
  float query[PITCH][GROUP], output[R][GROUP];
  float maximum[GROUP], sum[GROUP];
  int32_t limit[GROUP];  // keys from this number on are hidden from the row

  void start() {
    for (int r = 0; r < GROUP; ++r) maximum[r] = -INFINITE, sum[r] = 0, limit[r] = 0;
    __builtin_memset(query, 0, sizeof query);
    __builtin_memset(output, 0, sizeof output);
  }
  int64_t last_limit() const { return limit[GROUP - 1]; }  // limits do not fall from row to row

  // Asks for the bytes that KEYS keys have from feature d on, a line each.
  template <int KEYS> static inline __attribute__((always_inline)) void ask_for(const KeyPlaces& next, int64_t first, int64_t d) {
    constexpr int64_t LINE = 64 / static_cast<int64_t>(sizeof(Cached));
    if (d % LINE != 0 || first + KEYS > next.count) return;
#pragma GCC unroll 24
    for (int t = 0; t < KEYS; ++t) {
      const LatentRow& row = next.at[first + t];
      __builtin_prefetch(d < R ? row.latent + d : row.rope + (d - R), 0, 2);
    }
  }

  // Adds to the scores of AT_ONCE keys, unscaled, what features [from, to) give. AHEAD: asks for the next tile's keys meanwhile.
  template <bool AHEAD>
  inline __attribute__((always_inline)) void add_products(const KeyTile& tile, Scores& scores, int64_t key, int64_t from, int64_t to,
                                                          const KeyPlaces& next) const {
    Floats sums[AT_ONCE][VECTORS];
#pragma GCC unroll 24
    for (int t = 0; t < AT_ONCE; ++t)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sums[t][v] = from == 0 ? Floats{} : load_floats(scores[key + t] + v * LANES);
    for (int64_t d = from; d < to; d += LANES) {
      if (AHEAD) ask_for<AT_ONCE>(next, key, d);
#pragma GCC unroll 2
      for (int64_t i = d; i < d + LANES; ++i) {
        Floats q[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) q[v] = load_floats(query[i] + v * LANES);
#pragma GCC unroll 24
        for (int t = 0; t < AT_ONCE; ++t)
#pragma GCC unroll 4
          for (int v = 0; v < VECTORS; ++v) sums[t][v] += q[v] * tile.at[key + t][i];
      }
    }
#pragma GCC unroll 24
    for (int t = 0; t < AT_ONCE; ++t)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) store_floats(scores[key + t] + v * LANES, sums[t][v]);
  }

  // Those past the last key of a tile are of no account.
  template <bool AHEAD> void score(const KeyTile& tile, Scores& scores, const KeyPlaces& places, const KeyPlaces& next) const {
    for (int64_t from = 0; from < PITCH; from += STRETCH)
      for (int64_t key = 0; key < places.count; key += AT_ONCE)
        add_products<AHEAD>(tile, scores, key, from, from + STRETCH < PITCH ? from + STRETCH : PITCH, next);
  }

  // Scores become weights relative to the rows' maxima, which follow; returns what outputs are to be multiplied by.
  template <bool MASKED> inline Floats weigh(int v, Scores& scores, const KeyPlaces& places, const Scoring& scoring) {
    const float* at = scores[0] + v * LANES;
    Integers limits;
    __builtin_memcpy(&limits, limit + v * LANES, sizeof limits);
    const Floats before = load_floats(maximum + v * LANES);
    Floats now = before;
    for (int64_t k = 0; k < places.count; ++k) {
      Floats s = scoring(load_floats(at + k * GROUP));
      if (MASKED) s = splat_integer(static_cast<int32_t>(places.key[k])) < limits ? s : splat(-INFINITE);
      store_floats(scores[k] + v * LANES, s);
      now = larger_of(s, now);
    }
    const Floats base = now == splat(-INFINITE) ? Floats{} : now, factor = exp2_of(before - base);
    Floats all = load_floats(sum + v * LANES) * factor;
    for (int64_t k = 0; k < places.count; ++k) {
      const Floats weight = exp2_of(load_floats(at + k * GROUP) - base);
      store_floats(scores[k] + v * LANES, weight);
      all += weight;
    }
    store_floats(maximum + v * LANES, now);
    store_floats(sum + v * LANES, all);
    return factor;
  }

  // output[feature ...] = output * factor + weights * values. MASKED: a value behind a weight of 0 counts as 0 even if it is NaN; it may be of a key that
  // the row does not see.
  template <int COUNT, bool MASKED>
  inline __attribute__((always_inline)) void add_values(const KeyTile& tile, const Scores& scores, int64_t count, int64_t feature, const Floats (&factor)[VECTORS]) {
    Floats sums[COUNT][VECTORS];
#pragma GCC unroll 24
    for (int c = 0; c < COUNT; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sums[c][v] = load_floats(output[feature + c] + v * LANES) * factor[v];
    for (int64_t k = 0; k < count; ++k) {
      Floats weight[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) weight[v] = load_floats(scores[k] + v * LANES);
#pragma GCC unroll 24
      for (int c = 0; c < COUNT; ++c)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) {
          if (MASKED)
            sums[c][v] += weight[v] == Floats{} ? Floats{} : weight[v] * tile.at[k][feature + c];
          else
            sums[c][v] += weight[v] * tile.at[k][feature + c];
        }
    }
#pragma GCC unroll 24
    for (int c = 0; c < COUNT; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) store_floats(output[feature + c] + v * LANES, sums[c][v]);
  }

  template <bool MASKED> void attend_some(const KeyTile& tile, Scores& scores, const KeyPlaces& places, const Scoring& scoring) {
    Floats factor[VECTORS];
    for (int v = 0; v < VECTORS; ++v) factor[v] = weigh<MASKED>(v, scores, places, scoring);
    int64_t feature = 0;
    for (; feature + AT_ONCE <= R; feature += AT_ONCE) add_values<AT_ONCE, MASKED>(tile, scores, places.count, feature, factor);
    if constexpr (R % AT_ONCE != 0) add_values<R % AT_ONCE, MASKED>(tile, scores, places.count, feature, factor);
  }

  // After score().
  void attend(const KeyTile& tile, Scores& scores, const KeyPlaces& places, const Scoring& scoring) {
    const int64_t last = places.key[places.count - 1];
    bool hidden = false;
    for (int r = 0; r < GROUP; ++r) hidden |= limit[r] <= last;
    hidden ? attend_some<true>(tile, scores, places, scoring) : attend_some<false>(tile, scores, places, scoring);
  }

  // A part of the rows: their maxima, their sums of weights, their weighted values, which it leaves out where no row saw a key.
  static constexpr int64_t PART = (R + 2) * GROUP;
  void store_part(float* to) const {
    __builtin_memcpy(to, maximum, sizeof maximum);
    __builtin_memcpy(to + GROUP, sum, sizeof sum);
    bool some = false;
    for (int r = 0; r < GROUP; ++r) some |= sum[r] != 0;
    if (some) __builtin_memcpy(to + 2 * GROUP, output, sizeof output);
  }
};

// The parts of a group's rows, one after another, put together: features [first, first + count), FEATURES at most.
struct WholeGroup {
  static constexpr int64_t FEATURES = 64;
  alignas(64) float output[FEATURES][GROUP] = {};
  alignas(64) float maximum[GROUP], sum[GROUP] = {};

  WholeGroup(const float* from, int64_t parts, int64_t first, int64_t count) {
    for (int v = 0; v < VECTORS; ++v) {
      Floats most = splat(-INFINITE), all = {};
      for (int64_t part = 0; part < parts; ++part) most = larger_of(load_floats(from + part * RowGroup::PART + v * LANES), most);
      const Floats base = most == splat(-INFINITE) ? Floats{} : most;
      for (int64_t part = 0; part < parts; ++part) {
        const float* at = from + part * RowGroup::PART;
        const Floats part_sum = load_floats(at + GROUP + v * LANES), factor = exp2_of(load_floats(at + v * LANES) - base);
        if (!any_row(at + GROUP)) continue;  // saw nothing, and wrote no values
        all += part_sum * factor;
        for (int64_t c = 0; c < count; ++c) {
          float* to = output[c] + v * LANES;
          store_floats(to, load_floats(to) + load_floats(at + (2 + first + c) * GROUP + v * LANES) * factor);
        }
      }
      store_floats(maximum + v * LANES, most);
      store_floats(sum + v * LANES, all);
    }
  }

 private:
  static bool any_row(const float* sums) {
    bool some = false;
    for (int r = 0; r < GROUP; ++r) some |= sums[r] != 0;
    return some;
  }
};
