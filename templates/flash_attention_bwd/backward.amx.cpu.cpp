// flash_attention, backward, amx: as the tiled variant, with all five products on AMX tiles of bf16, f32 sums.
//
//   scores   S[row][key]       = sum over d   of Q[row][d]     * K^T[d][key]
//   weights' dP[row][key]      = sum over e   of dO[row][e]    * V^T[e][key]
//   values'  dV^T[e][key]     += sum over row of dO^T[e][row]  * P[row][key]
//   keys'    dK^T[d][key]     += sum over row of Q^T[d][row]   * dS[row][key]
//   queries' dQ[row][d]       += sum over key of dS[row][key]  * K[key][d]
// Left operands lie row by row, right operands in pairs along the sum, all in squares of 32 x 32: what is of a block of keys is made once for
// all its rows, what is of a tile of rows once for the block. Weights are made of one square while the next one's products are on their way,
// and are rounded to bf16, as gradients of scores are.
#include "device/cpu.h"
#include "flash_attention_bwd/amx_squares.h"
#include "flash_attention_bwd/tiled_gradient.h"
$if by_blocks  // blocksparse_attention_bwd
$if packed
#include "blocksparse_attention/packed_blocks.h"
$else
#include "blocksparse_attention/batched.h"
$end
$end

$require E == 'bf16' and D % 8 == 0 and Dv % 8 == 0 and block_m % 32 == 0 and block_n % 32 == 0
using Element = ${ctype(E)};
constexpr int64_t D = ${D};            // head dim of q and k
constexpr int64_t DV = ${Dv};          // head dim of v and out
constexpr bool OPTIONS = ${options};   // any of bias, mask, segments, soft cap, dropout may be given
constexpr int64_t BLOCK_M = ${block_m};  // query rows a tile
constexpr int64_t BLOCK_N = ${block_n};  // keys a block
constexpr int64_t WIDTH = SIDE, GRAIN = SIDE;
static_assert(LANES == 16, "AMX machines have 512-bit vectors");

constexpr int64_t D_FEATURES = (D + 31) / 32 * 32, DV_FEATURES = (DV + 31) / 32 * 32, D_COLUMNS = D_FEATURES;
constexpr int64_t D_STEPS = D_FEATURES / SIDE, DV_STEPS = DV_FEATURES / SIDE, ROW_STEPS = BLOCK_M / SIDE, KEY_STEPS = BLOCK_N / SIDE;

using KeyTile = GradientTile<BLOCK_M, WIDTH, BLOCK_N>;
using Call = GradientCall<Element>;
using Products = SquareProducts<D_STEPS, DV_STEPS>;

struct Steps {
  int64_t begin, end;
};

// The scratch of a worker: operands in squares of bf16, sums in f32. It has AMX's tiles while it lives.
struct Scratch {
  float *keys_by_feature, *values_by_feature;    // right: [key step][d step], [key step][e step]
  float* keys_by_key;                            // right: [d step][key step]
  float *dkeys_t, *dvalues_t;                    // [key step][D_FEATURES][SIDE], [key step][DV_FEATURES][SIDE]
  float *queries, *douts;                        // left: [row step][d step], [row step][e step]
  float *queries_t, *douts_t;                    // left: [d step][row step], [e step][row step]
  float *weight_pairs, *slope_pairs;             // right: [key step][row step]
  float* slope_lines;                            // left: [row step][key step]
  float* products;                               // two squares' scores and gradients of weights
  float *weights, *slopes, *by_score;            // a KeyTile's, where there are options
  float *base, *delta;                           // [BLOCK_M] each
  Row* row;                                      // [BLOCK_M]
  Steps rows_of_keys[KEY_STEPS], keys_of_rows[ROW_STEPS];  // squares that are multiplied on: of a key step, of a row step
  bool finite_keys, finite_queries, finite_douts;
$if by_blocks
  RowsAhead<Element>* ahead;
$end

  Scratch(void* memory) {
    float* next = static_cast<float*>(memory);
    const auto take = [&](int64_t count) { return next += count, next - count; };
    keys_by_feature = take(BLOCK_N * D_FEATURES / 2), values_by_feature = take(BLOCK_N * DV_FEATURES / 2);
    keys_by_key = take(BLOCK_N * D_FEATURES / 2);
    dkeys_t = take(BLOCK_N * D_FEATURES), dvalues_t = take(BLOCK_N * DV_FEATURES);
    queries = take(BLOCK_M * D_FEATURES / 2), douts = take(BLOCK_M * DV_FEATURES / 2);
    queries_t = take(BLOCK_M * D_FEATURES / 2), douts_t = take(BLOCK_M * DV_FEATURES / 2);
    weight_pairs = take(BLOCK_N * BLOCK_M / 2), slope_pairs = take(BLOCK_N * BLOCK_M / 2), slope_lines = take(BLOCK_N * BLOCK_M / 2);
    products = take(4 * SQUARE);
    constexpr int64_t optional = OPTIONS ? BLOCK_N * BLOCK_M : 0;
    weights = take(optional), slopes = take(optional), by_score = take(optional);
    base = take(BLOCK_M), delta = take(BLOCK_M);
    row = reinterpret_cast<Row*>(next);
    finite_keys = finite_queries = finite_douts = true;
    amx_configure();
  }
  ~Scratch() { amx_release(); }
  Scratch(const Scratch&) = delete;

$if by_blocks
  void ask_between(RowsAhead<Element>& rows) { ahead = &rows; }
$end
  SquareOperands operands(int64_t row_step, int64_t key_step) const {
    const int64_t pairs = (key_step * ROW_STEPS + row_step) * NARROW_SQUARE, lines = (row_step * KEY_STEPS + key_step) * NARROW_SQUARE;
    return {weight_pairs + pairs, slope_pairs + pairs, slope_lines + lines};
  }
  Products square_products(int64_t row_step, int64_t key_step, float* scores, float* slopes_of_weights) const {
    return {queries + row_step * D_STEPS * NARROW_SQUARE,         douts + row_step * DV_STEPS * NARROW_SQUARE,
            keys_by_feature + key_step * D_STEPS * NARROW_SQUARE, values_by_feature + key_step * DV_STEPS * NARROW_SQUARE,
            scores, slopes_of_weights};
  }
};

// Keys [first, first + count) of the sequence and their values; zeros up to a whole square.
static void load_block(const Call& call, const Sequence& s, int64_t kv_head, int64_t first, int64_t count, Scratch& scratch) {
  NarrowFiniteness keys, values;
  alignas(64) float square[NARROW_SQUARE];
  for (int64_t j = 0; j < count; j += SIDE) {
    const Element *k[SIDE], *v[SIDE];
    for (int64_t i = 0; i < SIDE; ++i) {
      const bool some = j + i < count;
      k[i] = some ? call.k.row(s.batch, s.first_key + first + j + i, kv_head) : nullptr;
      v[i] = some ? call.v.row(s.batch, s.first_key + first + j + i, kv_head) : nullptr;
    }
    for (int64_t d = 0; d < D_STEPS; ++d) {
      copy_square(square, k, d * SIDE, D, keys);
      turn_square(scratch.keys_by_feature + (j / SIDE * D_STEPS + d) * NARROW_SQUARE, square);
      pair_square<false>(scratch.keys_by_key + (d * KEY_STEPS + j / SIDE) * NARROW_SQUARE, square);
    }
    for (int64_t e = 0; e < DV_STEPS; ++e) {
      copy_square(square, v, e * SIDE, DV, values);
      turn_square(scratch.values_by_feature + (j / SIDE * DV_STEPS + e) * NARROW_SQUARE, square);
    }
  }
  scratch.finite_keys = keys.holds();
}

// One step of rows as a left operand by rows and by features.
template <int64_t DIM, int64_t STEPS>
static void load_row_step(const Element* const (&rows)[SIDE], int64_t row_step, float* by_row, float* by_feature, NarrowFiniteness& finite) {
  for (int64_t d = 0; d < STEPS; ++d) {
    float* square = by_row + (row_step * STEPS + d) * NARROW_SQUARE;
    copy_square(square, rows, d * SIDE, DIM, finite);
    pair_square<true>(by_feature + (d * ROW_STEPS + row_step) * NARROW_SQUARE, square);
  }
}

// The first `count` rows of scratch.row; up to `rows`, rows of zeros that see nothing.
static void load_rows(const Call& call, const Sequence& s, int64_t count, int64_t rows, Scratch& scratch) {
  NarrowFiniteness queries, douts;
  const int64_t first_row = call.rows.lse.rank == 2 ? s.first_query : 0;
  for (int64_t r = 0; r < rows; r += SIDE) {
    const Element *q[SIDE], *dout[SIDE];
    for (int64_t i = 0; i < SIDE; ++i) {
      Row& row = scratch.row[r + i];
      const bool some = r + i < count;
      if (!some) row.keys = {0, 0};
      q[i] = some ? call.q.row(s.batch, s.first_query + row.token, row.head) : nullptr;
      dout[i] = some ? call.dout.row(s.batch, s.first_query + row.token, row.head) : nullptr;
      const float lse = some ? call.rows.lse_of(s.batch, row.head)[first_row + row.token] : -INFINITE;
$if takes_bias
      scratch.base[r + i] = lse == -INFINITE ? INFINITE : log_of_row(call.rules, s.batch, row, lse${by_blocks ? ', call.visibility' : ''});
$else
      scratch.base[r + i] = lse == -INFINITE ? INFINITE : lse * LOG2_E;
$end
      scratch.delta[r + i] = some ? call.rows.delta_of(s.batch, row.head)[first_row + row.token] : 0;
    }
    load_row_step<D, D_STEPS>(q, r / SIDE, scratch.queries, scratch.queries_t, queries);
    load_row_step<DV, DV_STEPS>(dout, r / SIDE, scratch.douts, scratch.douts_t, douts);
  }
  scratch.finite_queries = queries.holds(), scratch.finite_douts = douts.holds();
}

// Scores and gradients of weights of a tile, in f32.
static void multiply_scores(const KeyTile& t, const Scratch& scratch) {
  for (int64_t r = 0; r < t.rows; r += SIDE)
    for (int64_t j = t.begin; j < t.end; j += SIDE) {
      const Products products = scratch.square_products(r / SIDE, j / SIDE, t.weights + t.place(r, j), t.slopes + t.place(r, j));
      for (int64_t i = 0; i < Products::PIECES; ++i) products.piece(i);
    }
}

// Weights and gradients of a whole tile, in f32, become operands.
static void narrow_tile(const KeyTile& t, Scratch& scratch) {
  for (int64_t r = 0; r < t.rows; r += SIDE)
    for (int64_t j = t.begin; j < t.end; j += SIDE) {
      const SquareOperands to = scratch.operands(r / SIDE, j / SIDE);
      for (int64_t p = 0; p < SIDE / 2; ++p) {
        Floats weights[2][2], slopes[2][2];
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t at = t.place(r + 2 * p + i / 2, j + i % 2 * LANES);
          weights[i / 2][i % 2] = load_floats(t.weights + at), slopes[i / 2][i % 2] = load_floats(t.slopes + at);
        }
        to.store(p, weights, slopes);
      }
    }
  for (int64_t r = 0; r < t.rows / SIDE; ++r) scratch.keys_of_rows[r] = {t.begin / SIDE, t.end / SIDE};
  for (int64_t j = t.begin / SIDE; j < t.end / SIDE; ++j) scratch.rows_of_keys[j] = {0, t.rows / SIDE};
}

// Which squares of a step of rows some of them see, of the tile's; `every`: the keys that all of them see.
static Steps squares_seen(const KeyTile& t, const Row* row, KeyRange& every) {
  KeyRange some{__INT64_MAX__, 0};
  every = {0, __INT64_MAX__};
  for (int64_t r = 0; r < SIDE; ++r) {
    const KeyRange keys = row[r].keys;
    every = {larger(every.first, keys.first), smaller(every.end, keys.end)};
    if (keys.first < keys.end) some = {smaller(some.first, keys.first), larger(some.end, keys.end)};
  }
  const int64_t begin = larger(t.begin, (some.first - t.first) / SIDE * SIDE), end = smaller(t.end, some.end - t.first);
  return begin < end ? Steps{begin / SIDE, (end + SIDE - 1) / SIDE} : Steps{t.begin / SIDE, t.begin / SIDE};
}

// The squares that some row sees, one's products between the other's weights.
static void weigh_squares(const Call& call, const KeyTile& t, Scratch& scratch) {
  SquareWeights waiting{};
  bool waits = false;
  int64_t turn = 0;
  for (int64_t j = t.begin / SIDE; j < t.end / SIDE; ++j) scratch.rows_of_keys[j] = {t.rows / SIDE, 0};
  for (int64_t r = 0; r < t.rows / SIDE; ++r) {
    KeyRange every;
    const Steps seen = scratch.keys_of_rows[r] = squares_seen(t, scratch.row + r * SIDE, every);
    for (int64_t j = t.begin / SIDE; j < t.end / SIDE; ++j) {
      const SquareOperands to = scratch.operands(r, j);
      if (j < seen.begin || j >= seen.end) {
        to.clear();
        continue;
      }
      Steps& rows = scratch.rows_of_keys[j];
      rows = {smaller(rows.begin, r), r + 1};
      float *scores = scratch.products + turn * 2 * SQUARE, *slopes = scores + SQUARE;
      const Products products = scratch.square_products(r, j, scores, slopes);
      for (int64_t i = 0; i < Products::PIECES; ++i) {
        products.piece(i);
$if by_blocks
        scratch.ahead->ask<D, DV, D_COLUMNS>();
$end
        if (waits) waiting.weigh(16 * i / Products::PIECES, 16 * (i + 1) / Products::PIECES);
      }
      const int64_t first = t.first + j * SIDE;
$if by_blocks
      const int64_t keys = smaller(t.count - j * SIDE, SIDE);
$end
      const bool all = ${by_blocks ? 'keys == SIDE && ' : ''}first >= every.first && first + SIDE <= every.end;
      waiting = {scores, slopes, scratch.base + r * SIDE, scratch.delta + r * SIDE, scratch.row + r * SIDE, first, all, call.rules.scale * LOG2_E, to};
$if by_blocks
      waiting.keys = keys;
$end
      waits = true, turn = 1 - turn;
    }
  }
  if (waits) waiting.weigh(0, 16);
}

// to[key step][feature][key] += features_t[feature][row] * pairs[row][key].
template <int64_t STEPS>
static void add_features(const KeyTile& t, const Scratch& scratch, const float* features_t, const float* pairs, float* to, bool finite) {
  for (int64_t j = t.begin / SIDE; j < t.end / SIDE; ++j) {
    const Steps rows = scratch.rows_of_keys[j];
    if (rows.begin >= rows.end) continue;
    const float* right = pairs + (j * ROW_STEPS + rows.begin) * NARROW_SQUARE;
    for (int64_t d = 0; d < STEPS; ++d) {
      const float* left = features_t + (d * ROW_STEPS + rows.begin) * NARROW_SQUARE;
      float* c = to + (j * STEPS + d) * SQUARE;
      if (finite)
        amx_tile_product(left, NARROW_SQUARE, right, rows.end - rows.begin, c, false);
      else
        tile_product_guarded<false>(left, NARROW_SQUARE, right, rows.end - rows.begin, c);
    }
  }
}

// dq[row][d] += slopes[row][key] * keys[key][d].
static void add_keys(const KeyTile& t, const Scratch& scratch, float* dq) {
  for (int64_t r = 0; r < t.rows / SIDE; ++r) {
    const Steps keys = scratch.keys_of_rows[r];
    if (keys.begin >= keys.end) continue;
    const float* left = scratch.slope_lines + (r * KEY_STEPS + keys.begin) * NARROW_SQUARE;
    for (int64_t d = 0; d < D_STEPS; ++d) {
      const float* right = scratch.keys_by_key + (d * KEY_STEPS + keys.begin) * NARROW_SQUARE;
      float* c = dq + r * SIDE * D_COLUMNS + d * SIDE;
      if (scratch.finite_keys)
        amx_tile_product<D_COLUMNS>(left, NARROW_SQUARE, right, keys.end - keys.begin, c, false);
      else
        tile_product_guarded<true, D_COLUMNS>(left, NARROW_SQUARE, right, keys.end - keys.begin, c);
    }
  }
}

// What a tile of rows brings to the gradients; dq: of its first row.
static void pass_tile(const Call& call, const KeyTile& t, Scratch& scratch, bool, float* dq) {
  if (OPTIONS && call.has_options()) {
    multiply_scores(t, scratch);
    weigh_rows(t, call.rules);
    narrow_tile(t, scratch);
  } else {
    weigh_squares(call, t, scratch);
  }
  add_features<DV_STEPS>(t, scratch, scratch.douts_t, scratch.weight_pairs, scratch.dvalues_t, scratch.finite_douts);
  add_features<D_STEPS>(t, scratch, scratch.queries_t, scratch.slope_pairs, scratch.dkeys_t, scratch.finite_queries);
  add_keys(t, scratch, dq);
}

#include "flash_attention_bwd/tiled_gradient_entries.h"
