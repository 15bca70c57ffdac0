// CPU vocabulary of mla_decode: GROUP query rows against tiles of keys. Rows lie across the lanes of vectors, so that a row's softmax is a lane's: a key's
// feature meets all rows of a vector at once, and nothing is summed over lanes. Scores are in units of log 2. Part of a template, which has defined
// before: R, VECTORS, AT_ONCE, BLOCK; and KeyTile.
#pragma once
constexpr int64_t STRETCH = 192;  // features of queries at a time: with a few keys they stay in the first cache

using Scores = ScoreRows;

static inline void start_products() {}
static inline void end_products() {}

struct alignas(64) RowGroup {
  float query[PITCH][GROUP], output[R][GROUP];
  GroupSoftmax softmax;

  void start() {
    softmax.start();
    __builtin_memset(query, 0, sizeof query);
    __builtin_memset(output, 0, sizeof output);
  }
  template <class T> void load_row(int r, const T* latent, const T* rope) {
    for (int64_t d = 0; d < R; ++d) query[d][r] = to_float(latent[d]);
    for (int64_t d = 0; d < ROPE; ++d) query[R + d][r] = to_float(rope[d]);
  }
  void end_loading() {}

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
      if (AHEAD) next.ask_for<AT_ONCE>(key, d);
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
    for (int v = 0; v < VECTORS; ++v) factor[v] = softmax.weigh<MASKED>(v, scores, places, scoring);
    int64_t feature = 0;
    for (; feature + AT_ONCE <= R; feature += AT_ONCE) add_values<AT_ONCE, MASKED>(tile, scores, places.count, feature, factor);
    if constexpr (R % AT_ONCE != 0) add_values<R % AT_ONCE, MASKED>(tile, scores, places.count, feature, factor);
  }

  // After score().
  void attend(const KeyTile& tile, Scores& scores, const KeyPlaces& places, const Scoring& scoring) {
    softmax.hides(places) ? attend_some<true>(tile, scores, places, scoring) : attend_some<false>(tile, scores, places, scoring);
  }

  // Weighted values, [R][GROUP].
  const float* values(KeyTile&) const { return output[0]; }
  void store_part(float* to) const {
    if (float* values = softmax.store_part(to)) __builtin_memcpy(values, output, sizeof output);
  }
};
