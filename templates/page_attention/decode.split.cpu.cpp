// page_attention, split: a work item takes a part of a sequence's keys for all query heads of one kv head, block by block; parts are put
// together by a second launch.
//
// ROWS query heads at a time meet TOKENS keys: their LANES products are summed by lanes into one vector, whose lane r * TOKENS + t is the
// score of head r and key t. Maxima and sums stay in that order until the end of a block. Scores are in units of log 2.
#include "device/cpu.h"
#include "device/attention.h"
#include "device/math.h"
#include "device/narrow.h"
#include "device/row_sums.h"
#include "device/widen_bytes.h"

using Cached = ${ctype(C)};
constexpr int64_t DIM = ${D};      // features of a head
constexpr int ROWS = ${rows};      // query heads at a time
constexpr int BLOCK = ${block_n};  // keys a block
$require D % 8 == 0
$require block_n % 16 == 0

constexpr int TOKENS = LANES / ROWS;              // keys of a vector of scores
constexpr int64_t CHUNKS = (DIM + LANES - 1) / LANES, PADDED = CHUNKS * LANES;
constexpr int VALUES = (LANES == 16 ? 16 : 8) / ROWS;  // vectors of each row's output that are in registers at once
static_assert(ROWS * TOKENS == LANES && VALUES > 0 && BLOCK % TOKENS == 0);

// LANES features from `chunk` on; past the last feature, zeros.
template <class T> static inline __attribute__((always_inline)) Floats load_chunk(const T* row, int64_t chunk) {
  if constexpr (DIM % LANES != 0)
    if (chunk + 1 == CHUNKS) return load_some(row + chunk * LANES, DIM % LANES);
  return load_floats(row + chunk * LANES);
}

// The caches of one kv head and the pages of one sequence.
struct Pages {
  const Cached *keys, *values;
  const int32_t* table;
  int64_t key_page, key_token, value_page, value_token, size;
};

// Where the tokens of a block lie.
struct Places {
  const Cached *key[BLOCK], *value[BLOCK];
  int64_t count;
};

// Tokens [begin, end), at most BLOCK; places past them repeat the last.
static void find_places(Places& places, const Pages& pages, int64_t begin, int64_t end) {
  places.count = end - begin < BLOCK ? end - begin : BLOCK;
  int64_t i = 0, page = begin / pages.size, slot = begin % pages.size;
  for (; i < places.count; ++page, slot = 0) {
    const int64_t at = pages.table[page];
    const Cached* key = pages.keys + at * pages.key_page + slot * pages.key_token;
    const Cached* value = pages.values + at * pages.value_page + slot * pages.value_token;
    for (; slot < pages.size && i < places.count; ++slot, ++i, key += pages.key_token, value += pages.value_token)
      places.key[i] = key, places.value[i] = value;
  }
  for (; i < BLOCK && i > 0; ++i) places.key[i] = places.key[i - 1], places.value[i] = places.value[i - 1];
}

static inline __attribute__((always_inline)) void prefetch_row(const Cached* row) {
#pragma GCC unroll 16
  for (int64_t d = 0; d < DIM; d += 64 / static_cast<int64_t>(sizeof(Cached))) __builtin_prefetch(row + d, 0, 3);
}

// ROWS query heads and their running softmax, in the worker's scratch.
struct Rows {
  float query[ROWS][PADDED], output[ROWS][PADDED];
  float maximum[LANES], sum[LANES];  // by lane: of row lane / TOKENS; sums are parts of the row's
};

static inline Floats lane_tokens() {
  Floats t;
  for (int lane = 0; lane < LANES; ++lane) t[lane] = static_cast<float>(lane % TOKENS);
  return t;
}

// Scores of a vector's worth of keys, unscaled.
static inline __attribute__((always_inline)) Floats products(const Rows& rows, const Cached* const* keys) {
  Floats sums[LANES] = {};
#pragma GCC unroll 1
  for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) {
    Floats q[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) q[r] = load_floats(rows.query[r] + chunk * LANES);
#pragma GCC unroll 16
    for (int t = 0; t < TOKENS; ++t) {
      const Floats k = load_chunk(keys[t], chunk);
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r) sums[r * TOKENS + t] += q[r] * k;
    }
  }
  return row_sums(sums);
}

// What a call does to scores: unit makes them units of log 2; with a cap, unit is without log2(e).
struct Scoring {
  float unit, cap;
};

// Fills scores with the block's scores; returns the largest by lane.
static Floats score_block(const Rows& rows, const Places& places, const Places& next, const Scoring& scoring, float* scores) {
  Floats most = splat(-INFINITE);
  const Floats token = lane_tokens();
  for (int64_t i = 0; i < places.count; i += TOKENS) {
    for (int t = 0; t < TOKENS; ++t)
      if (i + t < next.count) prefetch_row(next.key[i + t]);
    Floats s = products(rows, places.key + i) * scoring.unit;
    if (scoring.cap > 0) s = tanh_of(s / scoring.cap) * (scoring.cap * LOG2_E);
    if (i + TOKENS > places.count) s = token < splat(static_cast<float>(places.count - i)) ? s : splat(-INFINITE);
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
static void weigh_block(Rows& rows, Floats most, int64_t count, float* scores) {
  const Floats before = load_floats(rows.maximum), maximum = larger_of(spread_rows(most), before);
  const Floats base = maximum == splat(-INFINITE) ? Floats{} : maximum;
  Floats sum = load_floats(rows.sum);
  if (any(maximum > before)) {
    const Floats factor = exp2_of(before - base);
    sum *= factor;
    for (int r = 0; r < ROWS; ++r)
      for (int64_t d = 0; d < PADDED; d += LANES) store_floats(rows.output[r] + d, load_floats(rows.output[r] + d) * factor[r * TOKENS]);
    store_floats(rows.maximum, maximum);
  }
  for (int64_t i = 0; i < count; i += TOKENS) {
    const Floats weight = exp2_of(load_floats(scores + i * ROWS) - base);
    store_floats(scores + i * ROWS, weight);
    sum += weight;
  }
  store_floats(rows.sum, sum);
}

// output[..][chunk ... chunk + COUNT) += weights * values. AHEAD: asks for the next block's values meanwhile.
template <int COUNT, bool AHEAD>
static inline __attribute__((always_inline)) void add_chunks(Rows& rows, const Places& places, const Places& next, const float* weights,
                                                             int64_t chunk) {
  Floats sums[ROWS][COUNT];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < COUNT; ++c) sums[r][c] = load_floats(rows.output[r] + (chunk + c) * LANES);
  for (int64_t i = 0; i < places.count; ++i) {
    if (AHEAD && i < next.count) prefetch_row(next.value[i]);
    const float* weight = weights + i / TOKENS * LANES + i % TOKENS;
#pragma GCC unroll 16
    for (int c = 0; c < COUNT; ++c) {
      const Floats v = load_chunk(places.value[i], chunk + c);
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; ++r) sums[r][c] += v * weight[r * TOKENS];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < COUNT; ++c) store_floats(rows.output[r] + (chunk + c) * LANES, sums[r][c]);
}

static void add_values(Rows& rows, const Places& places, const Places& next, const float* weights) {
  constexpr int FIRST = CHUNKS < VALUES ? CHUNKS : VALUES;
  add_chunks<FIRST, true>(rows, places, next, weights, 0);
  int64_t chunk = FIRST;
  for (; chunk + VALUES <= CHUNKS; chunk += VALUES) add_chunks<VALUES, false>(rows, places, next, weights, chunk);
  if constexpr (CHUNKS > VALUES && CHUNKS % VALUES != 0) add_chunks<CHUNKS % VALUES, false>(rows, places, next, weights, chunk);
}

template <class T> static void load_query(Rows& rows, const View& view, int64_t sequence, int64_t head, int64_t count) {
  const T* from = static_cast<const T*>(view.data) + sequence * view.strides[0] + head * view.strides[1];
  for (int r = 0; r < ROWS; ++r)
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk)
      store_floats(rows.query[r] + chunk * LANES, r < count ? load_chunk(from + r * view.strides[1], chunk) : Floats{});
}

// Sinks join the row once: in the first part of its sequence.
static void start_rows(Rows& rows, const Sinks& sinks, int r) {
  float maximum = -INFINITE, sum = 0;
  for (int64_t i = 0; i < sinks.count; ++i) maximum = sinks[i] * LOG2_E > maximum ? sinks[i] * LOG2_E : maximum;
  for (int64_t i = 0; i < sinks.count; ++i) sum += exp2_of(splat(sinks[i] * LOG2_E - (maximum == -INFINITE ? 0 : maximum)))[0];
  for (int t = 0; t < TOKENS; ++t) rows.maximum[r * TOKENS + t] = maximum, rows.sum[r * TOKENS + t] = t == 0 ? sum : 0;
}

template <class T> static void store_row(const float* values, float factor, T* to) {
  for (int64_t d = 0; d < DIM; d += LANES) store_some(to + d, load_floats(values + d) * factor, DIM - d);
}

// Where a row's result goes, and what it is multiplied by.
struct Result {
  const View &out, &lse;
  int64_t type;

  void store(int64_t sequence, int64_t head, const float* values, float maximum, float sum, float scale) const {
    const float factor = sum == 0 ? 0 : scale / sum;
    const int64_t at = sequence * out.strides[0] + head * out.strides[1];
    if (type == TYPE_F32) store_row(values, factor, static_cast<float*>(out.data) + at);
    if (type == TYPE_F16) store_row(values, factor, static_cast<half*>(out.data) + at);
    if (type == TYPE_BF16) store_row(values, factor, static_cast<bfloat16*>(out.data) + at);
    if (is_given(lse))
      static_cast<float*>(lse.data)[sequence * lse.strides[0] + head] = (maximum == -INFINITE ? 0 : maximum * LN_2) + log_of(splat(sum))[0];
  }
};

struct Range {
  int64_t begin, end;
};

// Part `part` of `parts` of the keys [first, length) that a sequence's query sees, whole vectors of scores but for the last.
static Range part_of(int64_t first, int64_t length, int64_t part, int64_t parts) {
  const int64_t share = ((length - first + parts - 1) / parts + 15) / 16 * 16;
  const int64_t begin = first + part * share < length ? first + part * share : length;
  return {begin, begin + share < length ? begin + share : length};
}

// Item (x, y, z): part x of sequence z for kv head y.
static void decode(${parameters('decode')}, const Group& group) {
  const int64_t part = group.x, kv_head = group.y, sequence = group.z, heads = query_view.shape[1];
  const int64_t passes = (rows_a_head + ROWS - 1) / ROWS;
  Rows* all = static_cast<Rows*>(group.shared);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t head = kv_head * rows_a_head + pass * ROWS, count = rows_a_head - pass * ROWS;
    if (query_type == TYPE_F32) load_query<float>(all[pass], query_view, sequence, head, count);
    if (query_type == TYPE_F16) load_query<half>(all[pass], query_view, sequence, head, count);
    if (query_type == TYPE_BF16) load_query<bfloat16>(all[pass], query_view, sequence, head, count);
    __builtin_memset(all[pass].output, 0, sizeof all[pass].output);
    for (int r = 0; r < ROWS; ++r) {
      Sinks sinks(softmax_aux_view, sinks_type, r < count ? head + r : head, heads);
      if (part > 0) sinks.count = 0;
      start_rows(all[pass], sinks, r);
    }
  }

  const int64_t length = context_lens[sequence];
  const int64_t first = window_left >= 0 && window_left < length ? length - 1 - window_left : 0;
  const Range range = part_of(first, length, part, parts);
  const Pages pages{key_cache + kv_head * key_head, value_cache + kv_head * value_head, block_tables + sequence * table_row,
                    key_page, key_token, value_page, value_token, ps};
  const float scale = softmax_scale * (k_scale ? k_scale[kv_head * k_scales] : 1);
  const Scoring scoring{logits_soft_cap > 0 ? scale : scale * LOG2_E, logits_soft_cap};
  alignas(64) float scores[BLOCK * ROWS];
  Places places[2];
  int now = 0;
  find_places(places[now], pages, range.begin, range.end);
  for (int64_t key = range.begin; key < range.end; key += BLOCK, now = 1 - now) {
    Places& next = places[1 - now];
    find_places(next, pages, key + BLOCK < range.end ? key + BLOCK : range.end, range.end);
    for (int64_t pass = 0; pass < passes; ++pass) {
      const Floats most = score_block(all[pass], places[now], next, scoring, scores);
      weigh_block(all[pass], most, places[now].count, scores);
      add_values(all[pass], places[now], next, scores);
    }
  }

  const Result result{out_view, lse_view, query_type};
  for (int64_t i = 0; i < rows_a_head; ++i) {
    const Rows& rows = all[i / ROWS];
    const int64_t r = i % ROWS, head = kv_head * rows_a_head + i;
    float sum = 0;
    for (int t = 0; t < TOKENS; ++t) sum += rows.sum[r * TOKENS + t];
    if (parts == 1) {
      result.store(sequence, head, rows.output[r], rows.maximum[r * TOKENS], sum, v_scale ? v_scale[kv_head * v_scales] : 1);
      continue;
    }
    float* to = partial + ((sequence * heads + head) * parts + part) * (DIM + 2);
    to[0] = rows.maximum[r * TOKENS], to[1] = sum;
    if (sum != 0) store_row(rows.output[r], 1, to + 2);
  }
}

// Item (x, y): the parts of query head x of sequence y, put together.
static void combine(${parameters('combine')}, const Group& group) {
  const int64_t head = group.x, sequence = group.y, kv_head = head / rows_a_head;
  const float* from = partial + (sequence * group.grid_x + head) * parts * (DIM + 2);
  float maximum = -INFINITE, sum = 0;
  for (int64_t part = 0; part < parts; ++part) maximum = from[part * (DIM + 2)] > maximum ? from[part * (DIM + 2)] : maximum;
  alignas(64) float values[PADDED] = {};
  for (int64_t part = 0; part < parts; ++part) {
    const float* at = from + part * (DIM + 2);
    if (at[1] == 0) continue;  // saw nothing, and wrote no values
    const float factor = exp2_of(splat(at[0] - (maximum == -INFINITE ? 0 : maximum)))[0];
    // at[0] of -inf has a sum only where a score is NaN
    sum += at[0] == -INFINITE ? at[1] : at[1] * factor;
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk)
      store_floats(values + chunk * LANES, load_floats(values + chunk * LANES) + load_chunk(at + 2, chunk) * factor);
  }
  Result{out_view, lse_view, query_type}.store(sequence, head, values, maximum, sum, v_scale ? v_scale[kv_head * v_scales] : 1);
}
