// CPU vocabulary: the five products of the gradients of a token's query heads, in f32. Keys and values lie in groups of LANES, feature by
// feature, for the products whose results lie along keys; keys also row by row. What a token brings to keys and values joins sums that lie
// row by row. Part of a template, which has defined before: Element, D, DV.
#pragma once
#include "device/attention/decode_rows.h"

constexpr int ROWS = ${rows}, VECTORS = ${vectors};  // of a tile of scores
constexpr int KEYS = ${keys_together}, KEY_VECTORS = ${vectors_together};  // of a tile of gradients of keys and values
constexpr int QUERY_VECTORS = ${query_vectors};
constexpr int64_t GROUP = LANES, GROUPS = 64 / GROUP;
constexpr int64_t KEY_CHUNKS = (D + LANES - 1) / LANES, VALUE_CHUNKS = (DV + LANES - 1) / LANES;
constexpr int64_t KEY_WIDTH = KEY_CHUNKS * LANES, VALUE_WIDTH = VALUE_CHUNKS * LANES;  // floats of a row
// Floats of a group.
constexpr int64_t KEY_GROUP = D * GROUP, VALUE_GROUP = DV * GROUP, ROW_GROUP = GROUP * KEY_WIDTH;
constexpr int64_t ROW_STRIDE = KEY_WIDTH;
constexpr int64_t KEY_SUMS = GROUP * KEY_WIDTH, VALUE_SUMS = GROUP * VALUE_WIDTH;
static_assert(GROUP % KEYS == 0 && KEYS < 32);
#include "native_sparse_attention/key_groups.h"

// Keys of a kv head and their values, and the sums of their gradients.
struct Keys {
  const float *keys, *values;  // a group after the other, as [D][GROUP] and [DV][GROUP]
  const float* rows;           // of keys
  int64_t row_stride;
  float *key_sums, *value_sums;  // [key][KEY_WIDTH], [key][VALUE_WIDTH]
};

#include "native_sparse_attention/group_entries.h"

// The query heads of some tokens, ROWS a pass; rows past a token's last are zeros.
struct HeadGradients {
  float *queries, *douts;  // [token][row][KEY_WIDTH], [token][row][VALUE_WIDTH]
  float* dq;               // [token][row][KEY_WIDTH]
  int64_t heads, rows;     // of a token

  // Own floats of so many rows a token.
  static int64_t scratch(int64_t rows, int64_t tokens) { return tokens * rows * (2 * KEY_WIDTH + VALUE_WIDTH); }
  void lay_out(float* scratch, int64_t tokens) {
    queries = scratch;
    dq = queries + tokens * rows * KEY_WIDTH;
    douts = dq + tokens * rows * KEY_WIDTH;
  }
  void start() {}
  void end() {}

  float* row_of_dq(int64_t token, int64_t row) const { return dq + (token * rows + row) * KEY_WIDTH; }

  void load(int64_t token, const Element* query, int64_t query_stride, const Element* dout, int64_t dout_stride) {
    float *to = queries + token * rows * KEY_WIDTH, *dout_to = douts + token * rows * VALUE_WIDTH;
    for (int64_t row = 0; row < rows; ++row) {
      const bool some = row < heads;
      for (int64_t d = 0; d < KEY_WIDTH; d += LANES)
        store_floats(to + row * KEY_WIDTH + d, some ? load_some(query + row * query_stride + d, D - d) : Floats{});
      for (int64_t d = 0; d < VALUE_WIDTH; d += LANES)
        store_floats(dout_to + row * VALUE_WIDTH + d, some ? load_some(dout + row * dout_stride + d, DV - d) : Floats{});
    }
    __builtin_memset(row_of_dq(token, 0), 0, rows * KEY_WIDTH * sizeof(float));
  }

  // to[ROWS][pitch] = left[ROWS][WIDTH] times COUNT groups from `first` on.
  template <int64_t FEATURES, int64_t WIDTH, int COUNT>
  static inline __attribute__((always_inline)) void multiply(const float* left, const float* right, const Groups& groups, int64_t first, float* to,
                                                             int64_t pitch) {
    const float* column[COUNT];
    for (int i = 0; i < COUNT; ++i) column[i] = right + groups.index[first + i] * (FEATURES * GROUP);
    Floats sums[ROWS][COUNT] = {};
#pragma GCC unroll 2
    for (int64_t d = 0; d < FEATURES; ++d) {
      Floats k[COUNT];
#pragma GCC unroll 16
      for (int i = 0; i < COUNT; ++i) k[i] = load_floats(column[i] + d * GROUP);
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r) {
        const Floats q = splat(left[r * WIDTH + d]);
#pragma GCC unroll 16
        for (int i = 0; i < COUNT; ++i) sums[r][i] += q * k[i];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < COUNT; ++i) store_floats(to + r * pitch + (first + i) * GROUP, sums[r][i]);
  }
  // As many groups as the registers have room for, none alone if that can be.
  static int64_t groups_together(int64_t left) { return left == VECTORS + 1 ? (left + 1) / 2 : left < VECTORS ? left : VECTORS; }
  template <int COUNT = VECTORS> void score_groups(int64_t count, const Keys& keys, const Entry& e, int64_t row, int64_t first) const {
    if (COUNT > 1 && count < COUNT) return score_groups<(COUNT > 1 ? COUNT - 1 : 1)>(count, keys, e, row, first);
    const int64_t at = e.token * rows + row;
    multiply<D, KEY_WIDTH, COUNT>(queries + at * KEY_WIDTH, keys.keys, e.groups, first, e.weights + row * e.pitch, e.pitch);
    multiply<DV, VALUE_WIDTH, COUNT>(douts + at * VALUE_WIDTH, keys.values, e.groups, first, e.slopes + row * e.pitch, e.pitch);
  }
  // Scores of an entry, and gradients of its weights.
  void score(const Keys& keys, const Entry& e) const {
    for (int64_t row = 0; row < rows; row += ROWS)
      for (int64_t i = 0, count; i < e.groups.count; i += count) {
        count = groups_together(e.groups.count - i);
        score_groups(count, keys, e, row, i);
      }
  }

  template <int COUNT, int WIDE>
  static inline __attribute__((always_inline)) void load_sums(Floats (&sums)[COUNT][WIDE], const float* from, int64_t width) {
#pragma GCC unroll 16
    for (int r = 0; r < COUNT; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < WIDE; ++c) sums[r][c] = load_floats(from + r * width + c * LANES);
  }
  template <int COUNT, int WIDE>
  static inline __attribute__((always_inline)) void store_sums(const Floats (&sums)[COUNT][WIDE], float* to, int64_t width) {
#pragma GCC unroll 16
    for (int r = 0; r < COUNT; ++r)
#pragma GCC unroll 16
      for (int c = 0; c < WIDE; ++c) store_floats(to + r * width + c * LANES, sums[r][c]);
  }
  // sums[i][:] += factors[i * apart] * row[:].
  template <int COUNT, int WIDE>
  static inline __attribute__((always_inline)) void add_row(Floats (&sums)[COUNT][WIDE], const float* factors, int64_t apart, const float* row) {
    Floats v[WIDE];
#pragma GCC unroll 16
    for (int c = 0; c < WIDE; ++c) v[c] = load_floats(row + c * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < COUNT; ++r) {
      const Floats factor = splat(factors[r * apart]);
#pragma GCC unroll 16
      for (int c = 0; c < WIDE; ++c) sums[r][c] += factor * v[c];
    }
  }

  // dq += slopes * keys that are seen, of ROWS rows and WIDE vectors of features from `chunk` on.
  template <int WIDE> void add_to_queries(const Keys& keys, const Entry& e, int64_t row, int64_t chunk) const {
    float* to = row_of_dq(e.token, row) + chunk * LANES;
    Floats sums[ROWS][WIDE];
    load_sums(sums, to, KEY_WIDTH);
    for (int64_t i = 0; i < e.groups.count; ++i) {
      const float *factors = e.slopes + row * e.pitch + i * GROUP, *from = keys.rows + e.groups.index[i] * GROUP * keys.row_stride + chunk * LANES;
      const uint32_t seen = e.groups.seen[i];
      if (seen == WHOLE) {
#pragma GCC unroll 1
        for (int64_t j = 0; j < GROUP; ++j) add_row(sums, factors + j, e.pitch, from + j * keys.row_stride);
      } else {
#pragma GCC unroll 1
        for (int64_t j = 0; j < GROUP; ++j)
          if (seen >> j & 1) add_row(sums, factors + j, e.pitch, from + j * keys.row_stride);
      }
    }
    store_sums(sums, to, KEY_WIDTH);
  }
  void add_to_queries(const Keys& keys, const Entry& e) const {
    constexpr int WIDE = ROWS > 8 ? 1 : QUERY_VECTORS, REST = KEY_CHUNKS % WIDE;
    for (int64_t row = 0; row < rows; row += ROWS) {
      int64_t chunk = 0;
      for (; chunk + WIDE <= KEY_CHUNKS; chunk += WIDE) add_to_queries<WIDE>(keys, e, row, chunk);
      if constexpr (REST > 0) add_to_queries<REST>(keys, e, row, chunk);
    }
  }

  // Where the sums of some keys' gradients come from: of a token's heads their rows, and factors of the first of these keys.
  struct Source {
    const float *factors, *rows;
    int64_t pitch;
    uint32_t seen;  // a bit a key of a group
  };
  // sums[COUNT keys][WIDE vectors from `chunk` on] += factors * rows, from each source that sees all of them.
  template <int COUNT, int WIDE, int64_t WIDTH>
  inline __attribute__((always_inline)) void add_to_keys(const Source* sources, int64_t count, int64_t key, int64_t chunk, float* to) const {
    constexpr uint32_t ALL = (1u << COUNT) - 1;
    Floats sums[COUNT][WIDE];
    load_sums(sums, to + key * WIDTH + chunk * LANES, WIDTH);
    for (int64_t s = 0; s < count; ++s) {
      if ((sources[s].seen >> key & ALL) != ALL) continue;
      const float *factors = sources[s].factors + key, *row = sources[s].rows + chunk * LANES;
#pragma GCC unroll 1
      for (int64_t h = 0; h < heads; ++h) add_row(sums, factors + h * sources[s].pitch, 1, row + h * WIDTH);
    }
    store_sums(sums, to + key * WIDTH + chunk * LANES, WIDTH);
  }
  template <int COUNT, int64_t WIDTH> void add_to_keys(const Source* sources, int64_t count, int64_t key, float* to) const {
    constexpr int CHUNKS = WIDTH / LANES, REST = CHUNKS % KEY_VECTORS;
    int64_t chunk = 0;
    for (; chunk + KEY_VECTORS <= CHUNKS; chunk += KEY_VECTORS) add_to_keys<COUNT, KEY_VECTORS, WIDTH>(sources, count, key, chunk, to);
    if constexpr (REST > 0) add_to_keys<COUNT, REST, WIDTH>(sources, count, key, chunk, to);
  }
  // A group's keys, KEYS at once from the sources that see so many, and one by one from those that see some of them.
  template <int64_t WIDTH> void add_group(const Source* sources, int64_t count, float* to) const {
    constexpr uint32_t ALL = (1u << KEYS) - 1;
    for (int64_t key = 0; key < GROUP; key += KEYS) {
      bool whole = false;
      for (int64_t s = 0; s < count; ++s) whole = whole || (sources[s].seen >> key & ALL) == ALL;
      if (whole) add_to_keys<KEYS, WIDTH>(sources, count, key, to);
      for (int64_t s = 0; s < count; ++s) {
        if ((sources[s].seen >> key & ALL) == ALL) continue;
        for (int64_t i = key; i < key + KEYS; ++i)
          if (sources[s].seen >> i & 1) add_to_keys<1, WIDTH>(sources + s, 1, i, to);
      }
    }
  }

  // What the entries of a range bring to the gradients, once their weights have the gates, and slopes are made of them. gates, deltas:
  // [token][row].
  void add(const Keys& keys, const Entry* entries, int64_t count, const float* gates, const float* deltas) const {
    for (int64_t i = 0; i < count; ++i) {
      const Entry& e = entries[i];
      for (int64_t row = 0; row < heads; ++row) {
        const float gate = gates[e.token * rows + row], delta = deltas[e.token * rows + row];
        for (int64_t at = row * e.pitch, end = at + e.pitch; at < end; at += LANES) {
          const Floats weight = load_floats(e.weights + at) * gate;
          store_floats(e.weights + at, weight);
          store_floats(e.slopes + at, weight * (load_floats(e.slopes + at) - delta));
        }
      }
      add_to_queries(keys, e);
    }
    each_group(entries, count, [&](int64_t group, const Member* members, int64_t sources) {
      Source of_keys[TOKENS], of_values[TOKENS];
      for (int64_t i = 0; i < sources; ++i) {
        const Entry& e = *members[i].entry;
        const int64_t at = members[i].place * GROUP, row = e.token * rows;
        of_keys[i] = {e.slopes + at, queries + row * KEY_WIDTH, e.pitch, e.groups.seen[members[i].place]};
        of_values[i] = {e.weights + at, douts + row * VALUE_WIDTH, e.pitch, e.groups.seen[members[i].place]};
      }
      add_group<KEY_WIDTH>(of_keys, sources, keys.key_sums + group * KEY_SUMS);
      add_group<VALUE_WIDTH>(of_values, sources, keys.value_sums + group * VALUE_SUMS);
    });
  }
};

// A group of rows, of which `count` are there and the rest are zeros, feature by feature.
template <int64_t FEATURES> static void turn_group(const Element* from, int64_t stride, int64_t count, float* to) {
  for (int64_t d = 0; d < FEATURES; d += LANES) {
    Floats block[LANES];
    for (int64_t j = 0; j < LANES; ++j) block[j] = j < count ? load_some(from + j * stride + d, FEATURES - d) : Floats{};
    transpose(block);
    for (int64_t i = 0; i < LANES && d + i < FEATURES; ++i) store_floats(to + (d + i) * GROUP, block[i]);
  }
}
// Keys, their values, and keys row by row where `rows` is given.
static void pack_group(const Element* k, int64_t k_stride, const Element* v, int64_t v_stride, int64_t count, float* keys, float* values,
                       float* rows) {
  turn_group<D>(k, k_stride, count, keys);
  turn_group<DV>(v, v_stride, count, values);
  for (int64_t j = 0; rows && j < GROUP; ++j)
    for (int64_t d = 0; d < D; d += LANES) store_floats(rows + j * KEY_WIDTH + d, j < count ? load_some(k + j * k_stride + d, D - d) : Floats{});
}

$if gated
// A mean's place in its group.
static void store_mean(const float* key, const float* value, int64_t at, float* keys, float* values, float* rows) {
  for (int64_t d = 0; d < D; ++d) keys[at / GROUP * KEY_GROUP + d * GROUP + at % GROUP] = key[d];
  for (int64_t d = 0; d < DV; ++d) values[at / GROUP * VALUE_GROUP + d * GROUP + at % GROUP] = value[d];
  for (int64_t d = 0; d < KEY_WIDTH; ++d) rows[at * KEY_WIDTH + d] = d < D ? key[d] : 0;
}
$end

// to[GROUP][WIDTH] = what `count` parts, `apart` floats from one to the next, have summed of a group.
template <int64_t WIDTH> static void add_parts(const float* parts, int64_t count, int64_t apart, float* to) {
  for (int64_t i = 0; i < GROUP * WIDTH; i += LANES) {
    Floats sum = load_floats(parts + i);
    for (int64_t part = 1; part < count; ++part) sum += load_floats(parts + part * apart + i);
    store_floats(to + i, sum);
  }
}
