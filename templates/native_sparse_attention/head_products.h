// CPU vocabulary: both products of the query heads of a token, in f32. Keys lie in groups of LANES, feature by feature, so that scores lie along
// the vectors as keys do, and outputs as features do; ROWS heads times some vectors of sums stay in registers. Part of a template, which has
// defined before: Element, D, DV.
#pragma once
#include "device/attention/decode_rows.h"

constexpr int ROWS = ${rows}, VECTORS = ${vectors};
constexpr int64_t GROUP = LANES, GROUPS = 12;
constexpr int64_t VALUE_CHUNKS = (DV + LANES - 1) / LANES, WIDTH = VALUE_CHUNKS * LANES;   // floats of a row of outputs
constexpr int64_t KEY_GROUP = D * GROUP, MEAN_GROUP = KEY_GROUP, VALUE_GROUP = GROUP * WIDTH;  // floats of a group
static_assert(GROUPS % VECTORS == 0);
#include "native_sparse_attention/key_groups.h"

// Keys of a kv head, a group after the other as [D][GROUP], and rows of values.
struct Keys {
  const float *keys, *values;
  int64_t value_stride;
};
typedef Keys MeanKeys;

// The query heads of a token, ROWS a pass; rows past the last are zeros.
struct HeadProducts {
  float* queries;  // [passes][ROWS][D]
  float* scores;   // [passes][ROWS][BLOCK]
  float* outputs;  // [passes][ROWS][WIDTH]

  static constexpr int64_t ROW_SCRATCH = D, SCRATCH = 0;  // own floats: of a row, and of all together
  void lay_out(float* scratch, int64_t) { queries = scratch; }
  void start() {}
  void end() {}

  void load_queries(const Element* query, int64_t stride, int64_t heads, int64_t passes) {
    for (int64_t row = 0; row < passes * ROWS; ++row)
      for (int64_t d = 0; d < D; ++d) queries[row * D + d] = row < heads ? to_float(query[row * stride + d]) : 0;
  }

  template <int COUNT>
  inline __attribute__((always_inline)) void score_tile(int64_t pass, const Keys& keys, const Groups& groups, int64_t first) {
    const float *query = queries + pass * ROWS * D, *key[COUNT];
    for (int i = 0; i < COUNT; ++i) key[i] = keys.keys + groups.index[first + i] * KEY_GROUP;
    Floats sums[ROWS][COUNT] = {};
#pragma GCC unroll 2
    for (int64_t d = 0; d < D; ++d) {
      Floats k[COUNT];
#pragma GCC unroll 16
      for (int i = 0; i < COUNT; ++i) k[i] = load_floats(key[i] + d * GROUP);
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r) {
        const Floats q = splat(query[r * D + d]);
#pragma GCC unroll 16
        for (int i = 0; i < COUNT; ++i) sums[r][i] += q * k[i];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < COUNT; ++i) store_floats(scores + (pass * ROWS + r) * BLOCK + (first + i) * GROUP, sums[r][i]);
  }
  void score(int64_t pass, const Keys& keys, const Groups& groups) {
    int64_t i = 0;
    for (; i + VECTORS <= groups.count; i += VECTORS) score_tile<VECTORS>(pass, keys, groups, i);
    for (; i < groups.count; ++i) score_tile<1>(pass, keys, groups, i);
  }

  void take_weights(int64_t, int64_t, const Floats*) {}  // they lie in `scores`

  template <int COUNT>
  static inline __attribute__((always_inline)) void add_value(Floats (&sums)[ROWS][COUNT], const float* value, const float* weight) {
    Floats v[COUNT];
#pragma GCC unroll 16
    for (int c = 0; c < COUNT; ++c) v[c] = load_floats(value + c * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
      const Floats w = splat(weight[r * BLOCK]);
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) sums[r][c] += w * v[c];
    }
  }
  // outputs[..][COUNT vectors from `chunk` on] += weights * values, of keys that are seen alone.
  template <int COUNT>
  inline __attribute__((always_inline)) void add_chunks(int64_t pass, const Keys& keys, const Groups& groups, int64_t chunk) {
    float* output = outputs + pass * ROWS * WIDTH + chunk * LANES;
    Floats sums[ROWS][COUNT];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) sums[r][c] = load_floats(output + r * WIDTH + c * LANES);
    for (int64_t i = 0; i < groups.count; ++i) {
      const float* value = keys.values + groups.index[i] * GROUP * keys.value_stride + chunk * LANES;
      const float* weight = scores + pass * ROWS * BLOCK + i * GROUP;
      if (groups.seen[i] == WHOLE) {
#pragma GCC unroll 1
        for (int64_t j = 0; j < GROUP; ++j) add_value(sums, value + j * keys.value_stride, weight + j);
      } else {
#pragma GCC unroll 1
        for (int64_t j = 0; j < GROUP; ++j)
          if (groups.seen[i] >> j & 1) add_value(sums, value + j * keys.value_stride, weight + j);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < COUNT; ++c) store_floats(output + r * WIDTH + c * LANES, sums[r][c]);
  }
  void add_values(int64_t pass, const Keys& keys, const Groups& groups) {
    constexpr int REST = VALUE_CHUNKS % VECTORS;
    int64_t chunk = 0;
    for (; chunk + VECTORS <= VALUE_CHUNKS; chunk += VECTORS) add_chunks<VECTORS>(pass, keys, groups, chunk);
    if constexpr (REST > 0) add_chunks<REST>(pass, keys, groups, chunk);
  }
};

static inline void store_result(const float* from, Element* to) { store_row<DV>(from, 1, to); }

// A group of keys, and its values: `count` of them are there; the rest are zeros.
static void pack_group(const Element* k, int64_t k_stride, const Element* v, int64_t v_stride, int64_t count, float* keys, float* values) {
  for (int64_t d = 0; d < D; d += LANES) {
    Floats block[LANES];
    for (int64_t j = 0; j < LANES; ++j) block[j] = j < count ? load_some(k + j * k_stride + d, D - d) : Floats{};
    transpose(block);
    for (int64_t i = 0; i < LANES && d + i < D; ++i) store_floats(keys + (d + i) * GROUP, block[i]);
  }
  for (int64_t j = 0; values && j < GROUP; ++j)
    for (int64_t d = 0; d < DV; d += LANES) store_floats(values + j * WIDTH + d, j < count ? load_some(v + j * v_stride + d, DV - d) : Floats{});
}

$if gated
// A mean's place in its group. `value` may be null.
static void store_mean(const float* key, const float* value, int64_t at, float* keys, float* values) {
  float* to = keys + at / GROUP * KEY_GROUP + at % GROUP;
  for (int64_t d = 0; d < D; ++d) to[d * GROUP] = key[d];
  for (int64_t d = 0; value && d < WIDTH; ++d) values[at * WIDTH + d] = d < DV ? value[d] : 0;
}
$end
