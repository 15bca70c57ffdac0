// CPU vocabulary: the softmax of a tile of attention scores whose query rows lie along the vectors, so that masks, maxima, weights and sums
// need no operation across lanes. The matrix products around it are the kernel's own.
#pragma once
#include "device/number/philox_vector.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "device/number/narrow.h"
$if takes_bias
#include "device/attention/limited_bias.h"

static inline Floats limited_bias(Floats bias) { return (bias < splat(LEAST_BIAS)) & (bias > splat(-INFINITE)) ? splat(LEAST_BIAS) : bias; }
$end

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The first `count` of LANES elements from `index` on, zeros after them.
static inline __attribute__((noinline)) Floats load_elements(const void* data, int64_t type, int64_t index, int64_t count) {
  if (count >= LANES && type == TYPE_F32) return load_floats(static_cast<const float*>(data) + index);
  if (count >= LANES && type == TYPE_F16) return load_floats(static_cast<const half*>(data) + index);
  if (count >= LANES && type == TYPE_BF16) return load_floats(static_cast<const bfloat16*>(data) + index);
  float elements[LANES] = {};
  for (int64_t i = 0; i < count; ++i) elements[i] = element_of(data, type, index + i);
  return load_floats(elements);
}

// One query row: a token of one query head.
struct Row {
  KeyRange keys;  // visible by causality, window and length
  int64_t token, head;
};

// Rows [first_row, first_row + rows) of a sequence and kv head, `token_rows` a token; up to `padded`, copies of the last.
static inline void fill_rows(Row* row, int64_t padded, int64_t first_row, int64_t rows, int64_t kv_head, int64_t token_rows,
                             const Sequence& sequence, const Visibility& visibility) {
  for (int64_t r = 0; r < padded; ++r) {
    const int64_t at = first_row + smaller(r, rows - 1), token = at / token_rows;
    row[r] = {visible_keys(visibility, sequence, token), token, kv_head * token_rows + at % token_rows};
  }
}

// The range that holds every key some row sees.
static inline KeyRange keys_of_rows(const Row* row, int64_t rows) {
  KeyRange some{__INT64_MAX__, 0};
  for (int64_t r = 0; r < rows; ++r)
    if (row[r].keys.first < row[r].keys.end) some = {smaller(some.first, row[r].keys.first), larger(some.end, row[r].keys.end)};
  return some;
}

// Asks for tokens [begin, end) of one head, which will be needed soon.
template <class T>
static inline void prefetch(const Heads<T>& x, const Sequence& sequence, int64_t head, int64_t begin, int64_t end, int64_t dim) {
  for (int64_t j = begin; j < end; ++j) {
    const T* row = x.row(sequence.batch, sequence.first_key + j, head);
    for (int64_t d = 0; d < dim; d += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + d, 0, 2);
  }
}

// What a call does to scores besides the range of keys.
struct ScoreRules {
  const View &bias, &mask, &q_segments, &kv_segments;
  int64_t bias_type, heads;  // heads: query heads of the call
  float scale, soft_cap, drop_threshold;
  uint64_t seed;

  bool adjusts() const { return soft_cap > 0 || is_given(bias) || is_given(mask) || is_given(q_segments); }
};

// VECTORS * LANES rows against keys [begin, end) of a block that starts at key `first` of the sequence.
template <int VECTORS> struct Tile {
  static constexpr int64_t ROWS = VECTORS * LANES;
  const Row* row;
  float* scores;                            // [key of the block][ROWS]; become weights
  float *outputs, *maxima, *denominators;   // [feature][ROWS], [ROWS], [ROWS]: running; maxima in units of log 2
  int64_t batch, sequence, first, begin, end;
  float unit;           // scores * unit are in units of log 2
  float largest[ROWS];  // of each row's scores here

  float* at(int64_t key, int v) const { return scores + key * ROWS + v * LANES; }

  // The keys that some row sees, and those that every row sees.
  void bounds(KeyRange& some, KeyRange& every) const {
    some = {__INT64_MAX__, 0}, every = {0, __INT64_MAX__};
    for (int64_t r = 0; r < ROWS; ++r) {
      const KeyRange keys = row[r].keys;
      every = {larger(every.first, keys.first), smaller(every.end, keys.end)};
      if (keys.first < keys.end) some = {smaller(some.first, keys.first), larger(some.end, keys.end)};
    }
  }
};

// Lane-wise: is key first + j in the range of each of rows [0, LANES)?
struct RangeTest {
  Integers begin, end;
  RangeTest(const Row* row, int64_t first) {
    for (int lane = 0; lane < LANES; ++lane) {
      begin[lane] = static_cast<int32_t>(smaller(larger(row[lane].keys.first - first, 0), 1 << 30));
      end[lane] = static_cast<int32_t>(smaller(larger(row[lane].keys.end - first, 0), 1 << 30));
    }
  }
  Integers operator()(int64_t j) const {
    const Integers key = splat_integer(static_cast<int32_t>(j));
    return (key >= begin) & (key < end);
  }
};

// Scores of keys outside a row's range become -inf; the maxima are taken anew.
template <int VECTORS> static void mask_range(Tile<VECTORS>& t) {
#pragma GCC unroll 1
  for (int v = 0; v < VECTORS; ++v) {
    const RangeTest visible(t.row + v * LANES, t.first);
    Floats most = splat(-INFINITE);
    for (int64_t j = t.begin; j < t.end; ++j) {
      const Floats s = visible(j) ? load_floats(t.at(j, v)) * t.unit : splat(-INFINITE);
      store_floats(t.at(j, v), s);
      most = larger_of(s, most);
    }
    store_floats(t.largest + v * LANES, most);
  }
  t.unit = 1;
}

// Columns [j, j + count) of LANES rows of a tensor [B|1, Hq|1, Sq, Sk], transposed: columns[i] holds column j + i.
static inline __attribute__((noinline)) void load_columns(const View& view, int64_t type, int64_t batch, const Row* row, int64_t j,
                                                          int64_t count, Floats (&columns)[LANES]) {
  for (int lane = 0; lane < LANES; ++lane) {
    const int64_t offset = row_offset(view, batch, row[lane].head, row[lane].token) + j;
    columns[lane] = load_elements(view.data, type, offset, count);
  }
  transpose(columns);
}

// The segments of LANES queries, and of one key.
static inline Integers query_segments(const ScoreRules& rules, int64_t batch, const Row* row) {
  const int32_t* ids = static_cast<const int32_t*>(rules.q_segments.data) + batch * rules.q_segments.strides[0];
  Integers segments = {};
  for (int lane = 0; lane < LANES; ++lane) segments[lane] = ids[row[lane].token];
  return segments;
}
static inline int32_t key_segment(const ScoreRules& rules, int64_t batch, int64_t key) {
  return static_cast<const int32_t*>(rules.kv_segments.data)[batch * rules.kv_segments.strides[0] + key];
}

// Soft cap, bias and every kind of masking; the maxima are taken anew.
template <int VECTORS> static void adjust(const ScoreRules& rules, Tile<VECTORS>& t) {
  const bool biased = is_given(rules.bias), masked = is_given(rules.mask), segmented = is_given(rules.q_segments);
  const float cap = rules.soft_cap, into_cap = cap > 0 ? rules.scale / cap : 0;
#pragma GCC unroll 1
  for (int v = 0; v < VECTORS; ++v) {
    const Row* row = t.row + v * LANES;
    const RangeTest in_range(row, t.first);
    const Integers segments = segmented ? query_segments(rules, t.batch, row) : Integers{};
    Floats most = splat(-INFINITE), bias[LANES], mask[LANES];
    for (int64_t j = t.begin; j < t.end; ++j) {
      const int64_t key = t.first + j, column = (j - t.begin) % LANES, count = smaller(LANES, t.end - j);
      if (biased && column == 0) load_columns(rules.bias, rules.bias_type, t.batch, row, key, count, bias);
      if (masked && column == 0) load_columns(rules.mask, TYPE_BOOL, t.batch, row, key, count, mask);
      Floats s = load_floats(t.at(j, v));
      s = cap > 0 ? tanh_of(s * into_cap) * (cap * LOG2_E) : s * t.unit;
$if takes_bias
      if (biased) s += limited_bias(bias[column]) * LOG2_E;
$else
      if (biased) s += bias[column] * LOG2_E;
$end
      Integers visible = in_range(j);
      if (masked) visible &= mask[column] > Floats{};
      if (segmented) {
        const int32_t segment = key_segment(rules, t.batch, key);
        visible &= segment >= 0 ? segments == splat_integer(segment) : Integers{};
      }
      s = visible ? s : splat(-INFINITE);
      store_floats(t.at(j, v), s);
      most = larger_of(s, most);
    }
    store_floats(t.largest + v * LANES, most);
  }
  t.unit = 1;
}

// Weights of dropped keys become 0. The denominators keep them.
template <int VECTORS> static void drop(const ScoreRules& rules, Tile<VECTORS>& t) {
#pragma GCC unroll 1
  for (int v = 0; v < VECTORS; ++v) {
    const Row* row = t.row + v * LANES;
    Words words[4] = {};
    for (int64_t j = t.begin; j < t.end; ++j) {
      const int64_t key = t.first + j;
      if (j == t.begin || key % 8 == 0) {
        for (int lane = 0; lane < LANES; ++lane) {
          words[0][lane] = static_cast<uint32_t>(key >> 3);
          words[1][lane] = static_cast<uint32_t>(row[lane].token);
          words[2][lane] = static_cast<uint32_t>(t.sequence * rules.heads + row[lane].head);
          words[3][lane] = 0;
        }
        philox(words, rules.seed);
      }
      const Integers lane16 = reinterpret_cast<Integers>(dropout_lane(words, key));
      const Integers kept = lane16 >= splat_integer(static_cast<int32_t>(rules.drop_threshold));
      store_floats(t.at(j, v), kept ? load_floats(t.at(j, v)) : Floats{});
    }
  }
}

// The running maximum follows the largest score only where it is left behind by more than this (in units of log 2). Weights then reach
// up to 2^STALE instead of 1, which changes no result, and nearly all rescalings are saved.
constexpr float STALE = 8;

template <int VECTORS> static void follow_maxima(Tile<VECTORS>& t, int64_t features) {
  Integers grown[VECTORS], some = {};
  for (int v = 0; v < VECTORS; ++v) {
    grown[v] = load_floats(t.largest + v * LANES) * t.unit > load_floats(t.maxima + v * LANES) + STALE;
    some |= grown[v];
  }
  if (!any(some)) return;
  Floats factor[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    // Rows that did not grow keep theirs, or they would depend on keys that only other rows see.
    const Floats old = load_floats(t.maxima + v * LANES), now = grown[v] ? load_floats(t.largest + v * LANES) * t.unit : old;
    factor[v] = exp2_of(old - (now == splat(-INFINITE) ? Floats{} : now));
    store_floats(t.maxima + v * LANES, now);
    store_floats(t.denominators + v * LANES, load_floats(t.denominators + v * LANES) * factor[v]);
  }
  for (int64_t d = 0; d < features; ++d)
    for (int v = 0; v < VECTORS; ++v) {
      float* output = t.outputs + d * t.ROWS + v * LANES;
      store_floats(output, load_floats(output) * factor[v]);
    }
}

// Scores become weights exp(score - maximum); their sums join the denominators.
template <int VECTORS> static void weigh(Tile<VECTORS>& t) {
  Floats base[VECTORS], sum[VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) {
    const Floats maximum = load_floats(t.maxima + v * LANES);
    base[v] = maximum == splat(-INFINITE) ? Floats{} : maximum;
    sum[v] = Floats{};
  }
  const float unit = t.unit;
  for (int64_t j = t.begin; j < t.end; ++j)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      const Floats weight = exp2_of(load_floats(t.at(j, v)) * unit - base[v]);
      sum[v] += weight;
      store_floats(t.at(j, v), weight);
    }
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) store_floats(t.denominators + v * LANES, load_floats(t.denominators + v * LANES) + sum[v]);
}

// Sinks start the softmax of `count` rows; without them, and past the last packed sequence, it starts empty.
static inline void start_rows(const View& sinks_view, int64_t type, int64_t heads, const Sequence& sequence, const Row* row, int64_t count,
                              float* maxima, float* denominators) {
  for (int64_t r = 0; r < count; ++r) {
    const Sinks sinks(sinks_view, type, row[r].head, heads);
    const int64_t of_row = sequence.past_the_end ? 0 : sinks.count;
    float maximum = -INFINITE, sum = 0;
    for (int64_t i = 0; i < of_row; ++i) maximum = sinks[i] * LOG2_E > maximum ? sinks[i] * LOG2_E : maximum;
    const float base = maximum == -INFINITE ? 0 : maximum;
    for (int64_t i = 0; i < of_row; ++i) sum += exp2_of(splat(sinks[i] * LOG2_E - base))[0];
    maxima[r] = maximum;
    denominators[r] = sum;
  }
}

// lse: [B, Hq, Sq] or packed [Hq, Tq]; nothing if it was not asked for.
static inline void store_lse(const View& lse, const Sequence& sequence, const Row* row, int64_t count, const float* maxima,
                             const float* denominators) {
  if (!is_given(lse)) return;
  const int64_t batch = lse.rank == 3 ? sequence.batch * lse.strides[0] : 0, head_stride = lse.strides[lse.rank - 2];
  for (int64_t r = 0; r < count; r += LANES) {
    const Floats maximum = load_floats(maxima + r);
    const Floats result = (maximum == splat(-INFINITE) ? Floats{} : maximum * LN_2) + log_of(load_floats(denominators + r));
    for (int lane = 0; lane < LANES && r + lane < count; ++lane)
      static_cast<float*>(lse.data)[batch + row[r + lane].head * head_stride + sequence.first_query + row[r + lane].token] = result[lane];
  }
}

// out = outputs / denominators: outputs [tile][features][BLOCK_M], of which the first `dim` features are stored. A row without weight
// gives 0.
template <int64_t BLOCK_M, class Element>
static void store_outputs(const Heads<Element>& out, const Sequence& sequence, const Row* row, int64_t rows, const float* outputs,
                          int64_t dim, int64_t features, const float* denominators, float drop_threshold) {
  const float kept = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;
  for (int64_t r = 0; r < rows; r += LANES) {
    const float* from = outputs + r / BLOCK_M * features * BLOCK_M + r % BLOCK_M;
    const Floats sum = load_floats(denominators + r), factor = sum == Floats{} ? Floats{} : kept / sum;
    for (int64_t d = 0; d < dim; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) block[lane] = load_floats(from + (d + lane) * BLOCK_M) * factor;
      transpose(block);
      for (int lane = 0; lane < LANES && r + lane < rows; ++lane)
        store_some(out.row(sequence.batch, sequence.first_query + row[r + lane].token, row[r + lane].head) + d, block[lane], dim - d);
    }
  }
}
