// flash_attention, forward, amx: as the tiled variant, with both products on AMX tiles of bf16 (device/attention/amx_tile.h).
#include "device/cpu.h"
#include "device/attention/attention_chunk.h"

$require E == 'bf16' and D % 8 == 0 and Dv % 8 == 0 and block_n % 32 == 0
using Element = ${ctype(E)};
constexpr int64_t D = ${D};           // head dim of q and k
constexpr int64_t DV = ${Dv};         // head dim of v and out
constexpr bool OPTIONS = ${options};  // any of bias, mask, segments, soft cap, dropout may be given
constexpr int VECTORS = 2;
constexpr int64_t BLOCK_M = 32;          // query rows a tile: two AMX tiles
constexpr int64_t BLOCK_N = ${block_n};  // keys a block
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
#include "device/attention/amx_tile.h"

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
