// flash_attention, forward, amx: as the tiled variant, with both products on AMX tiles of bf16.
//
//   scores  S^T[key][row]     = sum over d   of K[key][d]       * Q^T[d][row]
//   output  O^T[feature][row] = sum over key of V^T[feature][key] * P^T[key][row]
// Left operands lie row by row (K as it is, V transposed once a block), right operands in pairs along the sum. Rows lie along the
// vectors, so the softmax between the products is the tiled one. Weights are rounded to bf16 for the second product, and summed in f32
// before that.
#include "device/cpu.h"
#include "device/matrix/amx.h"
#include "device/attention/attention_chunk.h"

$require E == 'bf16' and D % 8 == 0 and Dv % 8 == 0 and block_n % 32 == 0
using Element = ${ctype(E)};
constexpr int64_t D = ${D};           // head dim of q and k
constexpr int64_t DV = ${Dv};         // head dim of v and out
constexpr bool OPTIONS = ${options};  // any of bias, mask, segments, soft cap, dropout may be given
constexpr int VECTORS = 2;
constexpr int64_t BLOCK_M = 32;           // query rows a tile: two AMX tiles
constexpr int64_t BLOCK_N = ${block_n};   // keys a block
static_assert(LANES == 16, "AMX machines have 512-bit vectors");

constexpr int64_t D_PAD = (D + 31) / 32 * 32, OUTPUT_ROWS = (DV + 31) / 32 * 32;

// A work item: `rows` query rows in `tiles` row tiles, and its scratch.
struct Chunk {
  const Heads<const Element>&q, &k, &v;
  const ScoreRules& rules;
  Sequence sequence;
  int64_t kv_head, rows, tiles;
  float* queries;                // [tile][D_PAD / 2][BLOCK_M]: bits of two bf16
  float* outputs;                // [tile][OUTPUT_ROWS][BLOCK_M], sums of weights * values
  float *maxima, *denominators;  // [tile][BLOCK_M]
  Element* keys;                 // [BLOCK_N][D_PAD]
  Element* values;               // [OUTPUT_ROWS][BLOCK_N]
  float* scores;                 // [BLOCK_N][BLOCK_M]
  Words* weights;                // [BLOCK_N / 2][VECTORS]: two bf16 a word, of keys 2 p and 2 p + 1
  Row* row;                      // [tile][BLOCK_M]; past `rows`: copies of the last row
  bool finite_values = true;     // no NaN or infinity in `values`
};

// The bits of elements [d, d + 32) of a row of `dim`, zeros past its end.
static Floats load_pairs(const Element* row, int64_t d, int64_t dim) {
  Floats bits = {};
  __builtin_memcpy(&bits, row + d, smaller(32, dim - d) * sizeof(Element));
  return bits;
}

static void load_queries(Chunk& c) {
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    float* to = c.queries + r / BLOCK_M * (D_PAD / 2) * BLOCK_M + r % BLOCK_M;
    for (int64_t d = 0; d < D; d += 32) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) {
        const Row& row = c.row[r + lane];
        block[lane] = load_pairs(c.q.row(c.sequence.batch, c.sequence.first_query + row.token, row.head), d, D);
      }
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) store_floats(to + (d / 2 + lane) * BLOCK_M, block[lane]);
    }
  }
}

// Keys [first, first + count) of the sequence; rows up to a multiple of 32 are zeroed.
static void load_keys(Chunk& c, int64_t first, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const Element* k = c.k.row(c.sequence.batch, c.sequence.first_key + first + j, c.kv_head);
    for (int64_t d = 0; d < D; d += 32) {
      const Floats bits = load_pairs(k, d, D);
      __builtin_memcpy(c.keys + j * D_PAD + d, &bits, sizeof bits);
    }
  }
  __builtin_memset(c.keys + count * D_PAD, 0, (32 - count % 32) % 32 * D_PAD * sizeof(Element));
}

// Features [d, d + LANES) of one value, zeros past the last feature and for keys past `count`.
static Halfwords load_value(const Chunk& c, int64_t first, int64_t j, int64_t count, int64_t d) {
  Halfwords bits = {};
  if (j >= count) return bits;
  const Element* v = c.v.row(c.sequence.batch, c.sequence.first_key + first + j, c.kv_head);
  __builtin_memcpy(&bits, v + d, smaller(LANES, DV - d) * sizeof(Element));
  return bits;
}

static void load_values(Chunk& c, int64_t first, int64_t count) {
  Halfwords largest = {};
  for (int64_t j = 0; j < count; j += 32)
    for (int64_t d = 0; d < DV; d += LANES) {
      Floats block[LANES];
      for (int pair = 0; pair < LANES; ++pair) {
        const Halfwords even = load_value(c, first, j + 2 * pair, count, d), odd = load_value(c, first, j + 2 * pair + 1, count, d);
        const Halfwords even_magnitude = even & 0x7fff, odd_magnitude = odd & 0x7fff;
        largest = even_magnitude > largest ? even_magnitude : largest;
        largest = odd_magnitude > largest ? odd_magnitude : largest;
        block[pair] = reinterpret_cast<Floats>(__builtin_convertvector(even, Words) | __builtin_convertvector(odd, Words) << 16);
      }
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) __builtin_memcpy(c.values + (d + lane) * BLOCK_N + j, &block[lane], sizeof(Floats));
    }
  c.finite_values = !any(reinterpret_cast<Integers>(__builtin_convertvector(largest, Words)) >= splat_integer(0x7f80));
}

// Scores of keys [t.begin, t.end), in steps of 32 keys.
static void multiply_keys(const Chunk& c, const Tile<VECTORS>& t, const float* queries) {
  constexpr int64_t ROW = BLOCK_M * 4, KEY = D_PAD * 2;
  for (int64_t j = t.begin; j < t.end; j += 32) {
    amx_zero<0>(), amx_zero<1>(), amx_zero<2>(), amx_zero<3>();
    for (int64_t d = 0; d < D_PAD; d += 32) {
      amx_load<4>(c.keys + j * D_PAD + d, KEY);
      amx_load<6>(queries + d / 2 * BLOCK_M, ROW);
      amx_multiply<0, 4, 6>();
      amx_load<7>(queries + d / 2 * BLOCK_M + 16, ROW);
      amx_multiply<1, 4, 7>();
      amx_load<5>(c.keys + (j + 16) * D_PAD + d, KEY);
      amx_multiply<2, 5, 6>();
      amx_multiply<3, 5, 7>();
    }
    float* to = t.scores + j * BLOCK_M;
    amx_store<0>(to, ROW), amx_store<1>(to + 16, ROW);
    amx_store<2>(to + 16 * BLOCK_M, ROW), amx_store<3>(to + 16 * BLOCK_M + 16, ROW);
  }
}

static void take_maxima(Tile<VECTORS>& t) {
  for (int v = 0; v < VECTORS; ++v) {
    Floats most[2] = {splat(-INFINITE), splat(-INFINITE)};
    for (int64_t j = t.begin; j + 2 <= t.end; j += 2) {
      most[0] = larger_of(load_floats(t.at(j, v)), most[0]);
      most[1] = larger_of(load_floats(t.at(j + 1, v)), most[1]);
    }
    if (t.end % 2) most[0] = larger_of(load_floats(t.at(t.end - 1, v)), most[0]);
    store_floats(t.largest + v * LANES, larger_of(most[0], most[1]));
  }
}

// Weights to pairs of bf16, rounded half up; zeros from t.end up to a multiple of 32.
static void pack_weights(const Chunk& c, const Tile<VECTORS>& t) {
  const int64_t full = t.end / 2;
  for (int64_t p = t.begin / 2; p < (t.end + 31) / 32 * 16; ++p)
    for (int v = 0; v < VECTORS; ++v) {
      const Words even = p < full || 2 * p < t.end ? reinterpret_cast<Words>(load_floats(t.at(2 * p, v))) + 0x8000 : Words{};
      const Words odd = p < full ? reinterpret_cast<Words>(load_floats(t.at(2 * p + 1, v))) + 0x8000 : Words{};
      c.weights[p * VECTORS + v] = even >> 16 | (odd & 0xffff0000);
    }
}

// outputs += weights * values.
static void multiply_values(const Chunk& c, const Tile<VECTORS>& t) {
  constexpr int64_t ROW = BLOCK_M * 4, FEATURE = BLOCK_N * 2;
  for (int64_t d = 0; d < OUTPUT_ROWS; d += 32) {
    float* to = t.outputs + d * BLOCK_M;
    amx_load<0>(to, ROW), amx_load<1>(to + 16, ROW);
    amx_load<2>(to + 16 * BLOCK_M, ROW), amx_load<3>(to + 16 * BLOCK_M + 16, ROW);
    for (int64_t j = t.begin; j < t.end; j += 32) {
      amx_load<4>(c.values + d * BLOCK_N + j, FEATURE);
      amx_load<6>(c.weights + j / 2 * VECTORS, ROW);
      amx_multiply<0, 4, 6>();
      amx_load<7>(c.weights + j / 2 * VECTORS + 1, ROW);
      amx_multiply<1, 4, 7>();
      amx_load<5>(c.values + (d + 16) * BLOCK_N + j, FEATURE);
      amx_multiply<2, 5, 6>();
      amx_multiply<3, 5, 7>();
    }
    amx_store<0>(to, ROW), amx_store<1>(to + 16, ROW);
    amx_store<2>(to + 16 * BLOCK_M, ROW), amx_store<3>(to + 16 * BLOCK_M + 16, ROW);
  }
}

// The same, where a value behind a weight of 0 counts as 0 even if it is NaN: another row's key, masked in this one.
static void __attribute__((noinline)) add_values_guarded(const Chunk& c, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < DV; ++d)
    for (int v = 0; v < VECTORS; ++v) {
      Floats sum = {};
      for (int64_t j = t.begin; j < t.end; ++j) {
        const Floats weight = load_floats(t.at(j, v));
        sum += weight == Floats{} ? Floats{} : weight * to_float(c.values[d * BLOCK_N + j]);
      }
      float* output = t.outputs + d * BLOCK_M + v * LANES;
      store_floats(output, load_floats(output) + sum);
    }
}

// Row tile `tile` against the `count` keys in scratch, which start at key `first`.
static void attend_block(Chunk& c, int64_t tile, int64_t first, int64_t count) {
  Tile<VECTORS> t;
  KeyRange every;
  if (!start_tile<32>(t, c, tile, OUTPUT_ROWS, first, count, every)) return;
  multiply_keys(c, t, c.queries + tile * (D_PAD / 2) * BLOCK_M);
  if (OPTIONS && c.rules.adjusts()) {
    adjust(c.rules, t);
  } else if (first + t.begin < every.first || first + t.end > every.end) {
    mask_range(t);
  } else {
    take_maxima(t);
  }
  follow_maxima(t, DV);
  weigh(t);
  if (OPTIONS && c.rules.drop_threshold > 0) drop(c.rules, t);
  if (!c.finite_values) return add_values_guarded(c, t);
  pack_weights(c, t);
  multiply_values(c, t);
}

// Into scratch for `tiles` row tiles.
static inline __attribute__((always_inline)) void lay_out(Chunk& c, float* scratch, int64_t tiles, int64_t chunk_rows) {
  c.queries = scratch;
  c.outputs = c.queries + tiles * (D_PAD / 2) * BLOCK_M;
  c.maxima = c.outputs + tiles * OUTPUT_ROWS * BLOCK_M;
  c.denominators = c.maxima + chunk_rows;
  c.scores = c.denominators + chunk_rows;
  c.weights = reinterpret_cast<Words*>(c.scores + BLOCK_N * BLOCK_M);
  c.keys = reinterpret_cast<Element*>(c.weights + BLOCK_N / 2 * VECTORS);
  c.values = c.keys + BLOCK_N * D_PAD;
  c.row = reinterpret_cast<Row*>(c.values + BLOCK_N * OUTPUT_ROWS);
}

static inline __attribute__((always_inline)) void start_products(Chunk& c) {
  __builtin_memset(c.values, 0, BLOCK_N * OUTPUT_ROWS * sizeof(Element));  // features past DV stay 0
  amx_configure();
}
static inline __attribute__((always_inline)) void end_products() { amx_release(); }

$if by_blocks  // blocksparse_attention
#include "blocksparse_attention/block_chunk_entry.h"
$else
#include "flash_attention/attention_chunk_entry.h"
$end
