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
#include "flash_attention_bwd/strided_product.h"
#include "flash_attention_bwd/tiled_gradient.h"
$if by_blocks  // blocksparse_attention_bwd
$if packed
#include "blocksparse_attention/packed_blocks.h"
$else
#include "blocksparse_attention/batched.h"
$end
$end

$require D % 8 == 0 and Dv % 8 == 0 and 8 % panel == 0 and block_m % 8 == 0
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
constexpr int64_t D_FEATURES = D, DV_FEATURES = DV;         // of a panel of keys_t and values_t

using KeyTile = GradientTile<BLOCK_M, WIDTH, BLOCK_N>;
using Call = GradientCall<Element>;

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
$if by_blocks
  void ask_between(RowsAhead<Element>&) {}  // products take so long here that asking costs more than it saves
$end
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
$if takes_bias
    scratch.base[r] = lse == -INFINITE ? INFINITE : log_of_row(call.rules, s.batch, row, lse${by_blocks ? ', call.visibility' : ''});
$else
    scratch.base[r] = lse == -INFINITE ? INFINITE : lse * LOG2_E;
$end
    scratch.delta[r] = some ? call.rows.delta_of(s.batch, row.head)[first_row + row.token] : 0;
  }
  scratch.finite_queries = queries.holds(), scratch.finite_douts = douts.holds();
}

// Scores and gradients of weights of a tile.
static void multiply_scores(const KeyTile& t, const Scratch& scratch) {
  for (int64_t j = t.begin; j < t.end; j += WIDTH)
    for (int64_t r = 0; r < t.rows; r += PANEL) {
      multiply<PANEL, VECTORS, Q_PITCH, 1, WIDTH, WIDTH, false>(scratch.queries + r * Q_PITCH, scratch.keys_t + j * D, D,
                                                                t.weights + t.place(r, j));
      multiply<PANEL, VECTORS, DOUT_PITCH, 1, WIDTH, WIDTH, false>(scratch.douts + r * DOUT_PITCH, scratch.values_t + j * DV, DV,
                                                                   t.slopes + t.place(r, j));
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

// What a tile of rows brings to the gradients; dq: of its first row. `every`: all its rows see all of [t.begin, t.end).
static void pass_tile(const Call& call, const KeyTile& t, Scratch& scratch, bool every, float* dq) {
  multiply_scores(t, scratch);
  if (every && !(OPTIONS && call.has_options())) {
    weigh_all(t, call.rules.scale * LOG2_E);
  } else {
    weigh_rows(t, call.rules);
  }
  add_features<DOUT_PITCH, DV>(t, scratch.douts, t.weights, scratch.dvalues_t, scratch.finite_douts);
  add_features<Q_PITCH, D>(t, scratch.queries, t.slopes, scratch.dkeys_t, scratch.finite_queries);
  add_keys(t, scratch.keys, dq, scratch.finite_keys);
}

#include "flash_attention_bwd/tiled_gradient_entries.h"
