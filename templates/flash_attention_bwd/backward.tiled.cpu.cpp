// flash_attention, backward, tiled. A work item takes some blocks of keys of one kv head past all query rows that see them.
//
// A row is one query token of one of the query heads that share the kv head: row = token * heads + head. Keys lie along the vectors, so that
// nothing of a row tile is transposed, and what is of a block of keys is transposed once for all its rows:
//   scores   S[row][key]       = sum over d   of Q[row][d]     * K^T[d][key]
//   weights' dP[row][key]      = sum over e   of dO[row][e]    * V^T[e][key]
//   values'  dV^T[e][key]     += sum over row of dO[row][e]    * P[row][key]
//   keys'    dK^T[d][key]     += sum over row of Q[row][d]     * dS[row][key]
//   queries' dQ[row][d]       += sum over key of dS[row][key]  * K[key][d]
// dK and dV of a block stay in scratch until all rows have passed. dQ gathers in the item's own part of the workspace; the parts are added
// in order by the last launch, so results do not depend on which thread did what.
#include "device/cpu.h"
#include "device/gradient_tile.h"
#include "device/strided_product.h"

$require D % 8 == 0 and Dv % 8 == 0 and 8 % panel == 0 and block_m % 24 == 0
using Element = ${ctype(E)};
constexpr int64_t D = ${D};                 // head dim of q and k
constexpr int64_t DV = ${Dv};               // head dim of v and out
constexpr bool OPTIONS = ${options};        // any of bias, mask, segments, soft cap, dropout may be given
constexpr int PANEL = ${panel};             // query rows, or features, of a register tile
constexpr int VECTORS = ${vectors};         // vectors of keys of a register tile
constexpr int64_t WIDTH = VECTORS * LANES;  // keys a panel
constexpr int64_t BLOCK_M = ${block_m};     // query rows a tile
constexpr int64_t BLOCK_N = ${block_n};     // keys a block
static_assert(LANES * 4 == ${arch.vector_bytes}, "the arch file and the compiler disagree about the width of a vector");
static_assert(BLOCK_N % WIDTH == 0 && BLOCK_N % 8 == 0);

constexpr int64_t D_COLUMNS = (D + LANES - 1) / LANES * LANES, DV_COLUMNS = (DV + LANES - 1) / LANES * LANES;
constexpr int64_t Q_PITCH = D_COLUMNS + 16, DOUT_PITCH = DV_COLUMNS + 16;  // a power of two would put a column in one cache set
constexpr int DQ_COLUMNS = columns_together(D_COLUMNS / LANES, ${arch.registers});
constexpr int DQ_ROWS = rows_together(BLOCK_M, DQ_COLUMNS, ${arch.registers});
constexpr int64_t GRAIN = common_multiple(PANEL, DQ_ROWS);  // rows of a tile that fill every register tile
constexpr int64_t TOKENS = 64;                              // query tokens an item of the small launches

using KeyTile = GradientTile<BLOCK_M, WIDTH, BLOCK_N>;

// The scratch of a worker.
struct Scratch {
  float *keys, *keys_t, *values_t;         // [BLOCK_N][D_COLUMNS]; [panel][D][WIDTH]; [panel][DV][WIDTH]
  float *dkeys_t, *dvalues_t;              // as keys_t and values_t
  float *weights, *slopes, *by_score;      // [panel][BLOCK_M][WIDTH]
  float *queries, *douts, *base, *delta;   // [BLOCK_M][Q_PITCH], [BLOCK_M][DOUT_PITCH], [BLOCK_M] each
  Row* row;                                // [BLOCK_M]
  bool finite_keys, finite_queries, finite_douts;

  Scratch(void* memory) {
    float* next = static_cast<float*>(memory);
    const auto take = [&](int64_t count) { return next += count, next - count; };
    keys = take(BLOCK_N * D_COLUMNS), keys_t = take(BLOCK_N * D), values_t = take(BLOCK_N * DV);
    dkeys_t = take(BLOCK_N * D), dvalues_t = take(BLOCK_N * DV);
    weights = take(BLOCK_N * BLOCK_M), slopes = take(BLOCK_N * BLOCK_M), by_score = take(BLOCK_N * BLOCK_M);
    queries = take(BLOCK_M * Q_PITCH), douts = take(BLOCK_M * DOUT_PITCH), base = take(BLOCK_M), delta = take(BLOCK_M);
    row = reinterpret_cast<Row*>(next);
    finite_keys = finite_queries = finite_douts = true;
  }
};

struct Call {
  Heads<const Element> q, k, v, dout;
  RowTable rows;
  ScoreRules rules;
  Visibility visibility;
};

// Watches for NaN and infinity.
struct Finiteness {
  Integers largest = {};
  void see(Floats x) {
    const Integers magnitude = reinterpret_cast<Integers>(x) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  bool holds() const { return !any(largest >= splat_integer(0x7f800000)); }
};

// to[panel][d][key] of LANES keys at `j`; rows[i] is the key j + i's element, null past the last.
static void transpose_keys(const Element* const (&rows)[LANES], int64_t dim, int64_t j, float* to, float* natural, Finiteness& finite) {
  for (int64_t d = 0; d < dim; d += LANES) {
    Floats block[LANES];
    for (int lane = 0; lane < LANES; ++lane) {
      block[lane] = rows[lane] ? load_some(rows[lane] + d, dim - d) : Floats{};
      finite.see(block[lane]);
      if (natural) store_floats(natural + (j + lane) * D_COLUMNS + d, block[lane]);
    }
    transpose(block);
    for (int lane = 0; lane < LANES && d + lane < dim; ++lane)
      store_floats(to + (j / WIDTH * dim + d + lane) * WIDTH + j % WIDTH, block[lane]);
  }
}

// Keys [first, first + count) of the sequence and their values; zeros up to a whole panel.
static void load_block(const Call& call, const Sequence& s, int64_t kv_head, int64_t first, int64_t count, Scratch& scratch) {
  Finiteness keys, values;
  for (int64_t j = 0; j < (count + WIDTH - 1) / WIDTH * WIDTH; j += LANES) {
    const Element *k[LANES], *v[LANES];
    for (int lane = 0; lane < LANES; ++lane) {
      const bool some = j + lane < count;
      k[lane] = some ? call.k.row(s.batch, s.first_key + first + j + lane, kv_head) : nullptr;
      v[lane] = some ? call.v.row(s.batch, s.first_key + first + j + lane, kv_head) : nullptr;
    }
    transpose_keys(k, D, j, scratch.keys_t, scratch.keys, keys);
    transpose_keys(v, DV, j, scratch.values_t, nullptr, values);
  }
  scratch.finite_keys = keys.holds();
}

template <int64_t PITCH>
static void load_row(const Element* from, int64_t dim, float* to, Finiteness& finite) {
  for (int64_t d = 0; d < dim; d += LANES) {
    const Floats part = from ? load_some(from + d, dim - d) : Floats{};
    finite.see(part);
    store_floats(to + d, part);
  }
}

// The first `count` rows of scratch.row; up to `rows`, rows of zeros that see nothing.
static void load_rows(const Call& call, const Sequence& s, int64_t count, int64_t rows, Scratch& scratch) {
  Finiteness queries, douts;
  const int64_t first_row = call.rows.lse.rank == 2 ? s.first_query : 0;
  for (int64_t r = 0; r < rows; ++r) {
    Row& row = scratch.row[r];
    const bool some = r < count;
    if (!some) row.keys = {0, 0};
    load_row<Q_PITCH>(some ? call.q.row(s.batch, s.first_query + row.token, row.head) : nullptr, D, scratch.queries + r * Q_PITCH, queries);
    load_row<DOUT_PITCH>(some ? call.dout.row(s.batch, s.first_query + row.token, row.head) : nullptr, DV, scratch.douts + r * DOUT_PITCH,
                         douts);
    const float lse = some ? call.rows.lse_of(s.batch, row.head)[first_row + row.token] : -INFINITE;
    scratch.base[r] = lse == -INFINITE ? INFINITE : lse * LOG2_E;
    scratch.delta[r] = some ? call.rows.delta_of(s.batch, row.head)[first_row + row.token] : 0;
  }
  scratch.finite_queries = queries.holds(), scratch.finite_douts = douts.holds();
}

// Scores and gradients of weights of a tile, then weights and gradients of products.
static void weigh(const Call& call, const KeyTile& t, const Scratch& scratch, bool every) {
  for (int64_t j = t.begin; j < t.end; j += WIDTH)
    for (int64_t r = 0; r < t.rows; r += PANEL) {
      multiply<PANEL, VECTORS, Q_PITCH, 1, WIDTH, WIDTH, false>(scratch.queries + r * Q_PITCH, scratch.keys_t + j * D, D,
                                                                t.weights + t.place(r, j));
      multiply<PANEL, VECTORS, DOUT_PITCH, 1, WIDTH, WIDTH, false>(scratch.douts + r * DOUT_PITCH, scratch.values_t + j * DV, DV,
                                                                   t.slopes + t.place(r, j));
    }
  if (every) {
    weigh_all(t, call.rules.scale * LOG2_E);
  } else {
    weigh_rows(t, call.rules);
  }
}

// to[feature][key] += features[row][feature] * weights[row][key] where a weight of 0 brings nothing, not even NaN.
static __attribute__((noinline)) void add_features_guarded(const float* features, int64_t pitch, int64_t dim, const float* weights,
                                                           int64_t rows, float* to) {
  for (int64_t d = 0; d < dim; ++d)
    for (int64_t i = 0; i < WIDTH; i += LANES) {
      Floats sum = load_floats(to + d * WIDTH + i);
      for (int64_t r = 0; r < rows; ++r) {
        const Floats weight = load_floats(weights + r * WIDTH + i);
        sum += weight == Floats{} ? Floats{} : weight * features[r * pitch + d];
      }
      store_floats(to + d * WIDTH + i, sum);
    }
}

template <int64_t PITCH, int64_t DIM>
static inline __attribute__((always_inline)) void add_features(const KeyTile& t, const float* features, const float* weights, float* to, bool finite) {
  for (int64_t j = t.begin; j < t.end; j += WIDTH) {
    const float* panel = weights + t.place(0, j);
    if (!finite) {
      add_features_guarded(features, PITCH, DIM, panel, t.rows, to + j * DIM);
      continue;
    }
    for (int64_t d = 0; d < DIM; d += PANEL)
      multiply<PANEL, VECTORS, 1, PITCH, WIDTH, WIDTH, true>(features + d, panel, t.rows, to + j * DIM + d * WIDTH);
  }
}

static __attribute__((noinline)) void add_keys_guarded(const KeyTile& t, const float* keys, float* dq) {
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t j = t.begin; j < t.end; ++j) {
      const float slope = t.slopes[t.place(r, j)];
      if (slope == 0) continue;
      for (int64_t d = 0; d < D_COLUMNS; d += LANES)
        store_floats(dq + r * D_COLUMNS + d, load_floats(dq + r * D_COLUMNS + d) + load_floats(keys + j * D_COLUMNS + d) * slope);
    }
}

static void add_keys(const KeyTile& t, const float* keys, float* dq, bool finite) {
  if (!finite) return add_keys_guarded(t, keys, dq);
  for (int64_t r = 0; r < t.rows; r += DQ_ROWS)
    for (int64_t d = 0; d < D_COLUMNS; d += DQ_COLUMNS * LANES)
      multiply<DQ_ROWS, DQ_COLUMNS, WIDTH, 1, D_COLUMNS, D_COLUMNS, true, BLOCK_M * WIDTH>(
          t.slopes + t.place(r, t.begin), keys + t.begin * D_COLUMNS + d, WIDTH, dq + r * D_COLUMNS + d, (t.end - t.begin) / WIDTH);
}

// The panels of the block [first, first + count) that some of the rows see; false: there are none. `every`: all of them see all of it.
static bool panels_seen(const Row* row, int64_t rows, KeyTile& t, int64_t first, int64_t count, bool& every) {
  KeyRange some{__INT64_MAX__, 0}, all{0, __INT64_MAX__};
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange keys = row[r].keys;
    all = {larger(all.first, keys.first), smaller(all.end, keys.end)};
    if (keys.first < keys.end) some = {smaller(some.first, keys.first), larger(some.end, keys.end)};
  }
  if (some.first >= first + count || some.end <= first || some.first >= some.end) return false;
  t.first = first;
  t.begin = larger(some.first - first, 0) / WIDTH * WIDTH;
  t.end = (smaller(some.end - first, count) + WIDTH - 1) / WIDTH * WIDTH;
  every = first + t.begin >= all.first && first + t.end <= all.end;
  return true;
}

// LANES x LANES at a time: from[panel][feature][key] becomes rows of keys.
static void store_keys(const Heads<Element>& to, const Sequence& s, int64_t kv_head, int64_t first, int64_t count, const float* from,
                       int64_t dim, float factor) {
  for (int64_t j = 0; j < count; j += LANES)
    for (int64_t d = 0; d < dim; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane)
        block[lane] = d + lane < dim ? load_floats(from + (j / WIDTH * dim + d + lane) * WIDTH + j % WIDTH) * factor : Floats{};
      transpose(block);
      for (int lane = 0; lane < LANES && j + lane < count; ++lane)
        store_some(to.row(s.batch, s.first_key + first + j + lane, kv_head) + d, block[lane], dim - d);
    }
}

// All rows of the sequence past one block of keys; dq [row][D_COLUMNS].
static void pass_rows(const Call& call, const Sequence& s, int64_t kv_head, int64_t token_rows, int64_t first, int64_t count, float* dq,
                      Scratch& scratch) {
  const int64_t all_rows = s.seeing() * token_rows;
  KeyTile t{scratch.row, 0, s.batch, s.index, s.keys, 0, 0, 0, scratch.weights, scratch.slopes, nullptr, scratch.base, scratch.delta};
  for (int64_t row = 0; row < all_rows; row += BLOCK_M) {
    const int64_t rows = smaller(BLOCK_M, all_rows - row);
    bool every;
    t.rows = (rows + GRAIN - 1) / GRAIN * GRAIN;
    fill_rows(scratch.row, t.rows, row, rows, kv_head, token_rows, s, call.visibility);
    if (!panels_seen(scratch.row, rows, t, first, count, every)) continue;
    load_rows(call, s, rows, t.rows, scratch);
    weigh(call, t, scratch, every && !(OPTIONS && (call.rules.adjusts() || call.rules.drop_threshold > 0)));
    add_features<DOUT_PITCH, DV>(t, scratch.douts, t.weights, scratch.dvalues_t, scratch.finite_douts);
    add_features<Q_PITCH, D>(t, scratch.queries, t.slopes, scratch.dkeys_t, scratch.finite_queries);
    add_keys(t, scratch.keys, dq + row * D_COLUMNS, scratch.finite_keys);
  }
}

// Item (x, y, z): block x of query tokens of row z of the batch (packed: of all), query head y.
static void sum_rows(${parameters('sum_rows')}, const Group& group) {
  const RowTable rows{lse_view, delta, Hq, query_tokens};
  fill_delta(rows, Heads<const Element>(out_view), Heads<const Element>(dout_view), group.z, group.y, group.x * TOKENS,
             smaller((group.x + 1) * TOKENS, query_tokens), DV);
}

// Item x: element x of dsoftmax_aux.
static void differentiate_sinks(${parameters('differentiate_sinks')}, const Group& group) {
  const RowTable rows{lse_view, delta, Hq, query_tokens};
  store_sink_gradient(rows, softmax_aux_view, dsoftmax_aux_view, sinks_type, group.x, batches, query_tokens);
}

// Item (x, y, z): every splits-th block of keys from the x-th on, of kv head y and sequence z (batched: row of the batch).
static void differentiate(${parameters('differentiate')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view);
  const Heads<Element> dk(dk_view), dv(dv_view);
  const Call call{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), RowTable{lse_view, delta, q.heads, q.tokens},
                  ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                             logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)},
                  Visibility{causal, window_left, window_right}};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const Sequence s = sequences[group.z];
  const int64_t keys = !cum_seqlens_q ? k.tokens : s.past_the_end ? k.tokens - s.first_key : s.keys, token_rows = q.heads / k.heads;
  const int64_t first_row = cum_seqlens_q ? s.first_query * token_rows + s.index * BLOCK_M : 0;
  float* dq = dq_parts + (((group.x * batches + s.batch) * k.heads + group.y) * part_rows + first_row) * D_COLUMNS;
  __builtin_memset(dq, 0, s.queries * token_rows * D_COLUMNS * sizeof(float));
  Scratch scratch(group.shared);
  for (int64_t first = group.x * BLOCK_N; first < keys; first += group.grid_x * BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, keys - first);
    load_block(call, s, group.y, first, larger(smaller(count, s.keys - first), 0), scratch);
    __builtin_memset(scratch.dkeys_t, 0, BLOCK_N * D * sizeof(float));
    __builtin_memset(scratch.dvalues_t, 0, BLOCK_N * DV * sizeof(float));
    pass_rows(call, s, group.y, token_rows, first, count, dq, scratch);
    store_keys(dk, s, group.y, first, count, scratch.dkeys_t, D, softmax_scale);
    store_keys(dv, s, group.y, first, count, scratch.dvalues_t, DV, 1);
  }
}

// Item (x, y, z): block x of query tokens (packed: of all sequences; batched: of row z of the batch), kv head y: the parts of dq are added.
static void add_parts(${parameters('add_parts')}, const Group& group) {
  const Heads<Element> dq(dq_view);
  const int64_t token_rows = Hkv > 0 ? dq.heads / Hkv : 1;
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, dq.tokens, 0, false, 0};
  Sequence s = sequences[cum_seqlens_q ? 0 : group.z];
  int64_t item = group.x, items = group.grid_x;
  if (cum_seqlens_q && !sequences.find(item, TOKENS, 1, s, items)) return;
  const int64_t first_row = cum_seqlens_q ? s.first_query * token_rows + s.index * BLOCK_M : 0;
  for (int64_t row = item * TOKENS * token_rows; row < smaller((item + 1) * TOKENS, s.queries) * token_rows; ++row) {
    const float* from = dq_parts + ((s.batch * Hkv + group.y) * part_rows + first_row + row) * D_COLUMNS;
    Element* to = dq.row(s.batch, s.first_query + row / token_rows, group.y * token_rows + row % token_rows);
    for (int64_t d = 0; d < D; d += LANES) {
      Floats sum = load_floats(from + d);
      for (int64_t part = 1; part < splits; ++part) sum += load_floats(from + part * batches * Hkv * part_rows * D_COLUMNS + d);
      store_some(to + d, sum * softmax_scale, D - d);
    }
  }
}

// Adds the gradients of the scores of one head's rows to scratch.by_score.
static void add_scores(const Call& call, const Sequence& s, int64_t head, int64_t token, int64_t rows, int64_t first, int64_t count,
                       Scratch& scratch) {
  KeyTile t{scratch.row, 0, s.batch, s.index, s.keys, 0, 0, 0, scratch.weights, scratch.slopes, scratch.by_score, scratch.base, scratch.delta};
  bool every;
  t.rows = (rows + GRAIN - 1) / GRAIN * GRAIN;
  fill_rows(scratch.row, t.rows, token, rows, head, 1, s, call.visibility);
  if (!panels_seen(scratch.row, rows, t, first, count, every)) return;
  load_block(call, s, head * call.k.heads / call.q.heads, first, smaller(count, s.keys - first), scratch);
  load_rows(call, s, rows, t.rows, scratch);
  weigh(call, t, scratch, false);
}

static void store_bias_row(const View& dbias, int64_t type, int64_t to, const KeyTile& t, int64_t r, int64_t count) {
  for (int64_t j = 0; j < count; ++j) store_element(dbias.data, type, to + j, t.by_score[t.place(r, j)]);
}

// Item (x, y, z): block x of query tokens, head y and row z of dbias, summed over the heads and rows of the batch that share it.
static void differentiate_bias(${parameters('differentiate_bias')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view);
  const Call call{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), RowTable{lse_view, delta, q.heads, q.tokens},
                  ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                             logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)},
                  Visibility{causal, window_left, window_right}};
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const int64_t first_batch = group.grid_z == 1 ? 0 : group.z, end_batch = group.grid_z == 1 ? sequence_count : group.z + 1;
  const int64_t first_head = group.grid_y == 1 ? 0 : group.y, end_head = group.grid_y == 1 ? q.heads : group.y + 1;
  const int64_t token = group.x * BLOCK_M, rows = smaller(BLOCK_M, q.tokens - token);
  Scratch scratch(group.shared);
  KeyTile t{};
  t.by_score = scratch.by_score;
  for (int64_t first = 0; first < k.tokens; first += BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, k.tokens - first);
    __builtin_memset(scratch.by_score, 0, BLOCK_N * BLOCK_M * sizeof(float));
    for (int64_t b = first_batch; b < end_batch; ++b)
      for (int64_t h = first_head; h < end_head; ++h) add_scores(call, sequences[b], h, token, rows, first, count, scratch);
    for (int64_t r = 0; r < rows; ++r)
      store_bias_row(dbias_view, bias_type, row_offset(dbias_view, group.z, group.y, token + r) + first, t, r, count);
  }
}
