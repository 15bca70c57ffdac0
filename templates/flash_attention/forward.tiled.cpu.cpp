// flash_attention, forward, tiled. A work item takes a chunk of query rows of one kv head through all their keys.
//
// A row is one query token of one of the query heads that share the kv head: row = token * heads + head. Rows lie along the vectors.
// Both products run on one micro-kernel, panel_product:
//   scores  S^T[key][row]     = sum over d   of K[key][d]       * Q^T[d][row]
//   output  O^T[feature][row] = sum over key of V[key][feature] * P^T[key][row]
// Blocks of K and V are copied (and widened) once a work item into the worker's scratch, and serve all its row tiles.
#include "device/cpu.h"
#include "device/attention/attention_chunk.h"
#include "device/matrix/panel.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_n % 16 == 0
$require 8 % panel == 0
using Element = ${ctype(E)};
constexpr int64_t D = ${D};                   // head dim of q and k
constexpr int64_t DV = ${Dv};                 // head dim of v and out
constexpr bool OPTIONS = ${options};          // any of bias, mask, segments, soft cap, dropout may be given
constexpr int PANEL = ${panel};               // keys, or output features, of a register tile
constexpr int VECTORS = ${vectors};           // vectors of query rows of a register tile
constexpr int64_t BLOCK_M = VECTORS * LANES;  // query rows a tile
constexpr int64_t BLOCK_N = ${block_n};       // keys a block
static_assert(LANES * 4 == ${arch.vector_bytes}, "the arch file and the compiler disagree about the width of a vector");

constexpr int64_t VALUE_PANEL = BLOCK_N * PANEL + 16;  // floats of a panel of values: a power of two would put all panels in one cache set
constexpr int64_t D_ROWS = (D + LANES - 1) / LANES * LANES, OUTPUT_ROWS = (DV + LANES - 1) / LANES * LANES;

// A work item: `rows` query rows in `tiles` row tiles, and its scratch.
struct Chunk {
  const Heads<const Element>&q, &k, &v;
  const ScoreRules& rules;
  Sequence sequence;
  int64_t kv_head, rows, tiles;
  float* queries;                // [tile][D_ROWS][BLOCK_M]
  float* outputs;                // [tile][OUTPUT_ROWS][BLOCK_M], sums of weights * values
  float *maxima, *denominators;  // [tile][BLOCK_M]
  float* keys;                   // [BLOCK_N][D]
  float* values;                 // [DV / PANEL][VALUE_PANEL], each [BLOCK_N][PANEL]
  float* scores;                 // [BLOCK_N][BLOCK_M]
  Row* row;                      // [tile][BLOCK_M]; past `rows`: copies of the last row
  bool finite_values = true;     // no NaN or infinity in `values`
};

static void load_queries(Chunk& c) {
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    float* to = c.queries + r / BLOCK_M * D_ROWS * BLOCK_M + r % BLOCK_M;
    for (int64_t d = 0; d < D; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) {
        const Row& row = c.row[r + lane];
        block[lane] = load_some(c.q.row(c.sequence.batch, c.sequence.first_query + row.token, row.head) + d, D - d);
      }
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) store_floats(to + (d + lane) * BLOCK_M, block[lane]);
    }
  }
}

// Keys [first, first + count) of the sequence; rows up to a whole panel are zeroed.
static void load_keys(Chunk& c, int64_t first, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const Element* k = c.k.row(c.sequence.batch, c.sequence.first_key + first + j, c.kv_head);
    float* to = c.keys + j * D;
    for (int64_t d = 0; d + LANES <= D; d += LANES) store_floats(to + d, load_floats(k + d));
    for (int64_t d = D / LANES * LANES; d < D; ++d) to[d] = to_float(k[d]);
  }
  const int64_t padding = (PANEL - count % PANEL) % PANEL;
  __builtin_memset(c.keys + count * D, 0, padding * D * sizeof(float));
}

static void load_values(Chunk& c, int64_t first, int64_t count) {
  constexpr int64_t PIECE = PANEL < LANES ? PANEL : LANES;
  Integers largest = {};
  for (int64_t j = 0; j < count; ++j) {
    const Element* v = c.v.row(c.sequence.batch, c.sequence.first_key + first + j, c.kv_head);
    for (int64_t d = 0; d < DV; d += LANES) {
      const Floats part = load_some(v + d, DV - d);
      const Integers magnitude = reinterpret_cast<Integers>(part) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
      float lanes[LANES];
      store_floats(lanes, part);
      for (int64_t i = 0; i < LANES && d + i < DV; i += PIECE)
        __builtin_memcpy(c.values + (d + i) / PANEL * VALUE_PANEL + j * PANEL + (d + i) % PANEL, lanes + i, PIECE * sizeof(float));
    }
  }
  c.finite_values = !any(largest >= splat_integer(0x7f800000));
}

// outputs += weights * values, where a value behind a weight of 0 counts as 0 even if it is NaN: another row's key, masked in this one.
static void __attribute__((noinline)) add_values_guarded(const Chunk& c, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < DV; ++d)
    for (int v = 0; v < VECTORS; ++v) {
      Floats sum = {};
      for (int64_t j = t.begin; j < t.end; ++j) {
        const Floats weight = load_floats(t.at(j, v));
        sum += weight == Floats{} ? Floats{} : weight * c.values[d / PANEL * VALUE_PANEL + j * PANEL + d % PANEL];
      }
      float* output = t.outputs + d * BLOCK_M + v * LANES;
      store_floats(output, load_floats(output) + sum);
    }
}

// Row tile `tile` against the `count` keys in scratch, which start at key `first`.
static void attend_block(Chunk& c, int64_t tile, int64_t first, int64_t count) {
  Tile<VECTORS> t;
  KeyRange every;
  if (!start_tile<PANEL>(t, c, tile, OUTPUT_ROWS, first, count, every)) return;
  for (int64_t r = 0; r < BLOCK_M; ++r) t.largest[r] = -INFINITE;
  const float* queries = c.queries + tile * D_ROWS * BLOCK_M;
  for (int64_t j = t.begin; j < t.end; j += PANEL)
    panel_product<PANEL, VECTORS, D, 1, false>(c.keys + j * D, queries, D, t.scores + j * BLOCK_M, t.largest);
  if (OPTIONS && c.rules.adjusts()) {
    adjust(c.rules, t);
  } else if (first + t.begin < every.first || first + t.end > every.end || t.end % PANEL != 0) {
    mask_range(t);
  }
  follow_maxima(t, DV);
  weigh(t);
  if (OPTIONS && c.rules.drop_threshold > 0) drop(c.rules, t);
  if (!c.finite_values) return add_values_guarded(c, t);
  for (int64_t d = 0; d < DV; d += PANEL)
    panel_product<PANEL, VECTORS, 1, PANEL, true>(c.values + d / PANEL * VALUE_PANEL + t.begin * PANEL, t.scores + t.begin * BLOCK_M,
                                                  t.end - t.begin, t.outputs + d * BLOCK_M, nullptr);
}

// Into scratch for `tiles` row tiles.
static inline __attribute__((always_inline)) void lay_out(Chunk& c, float* scratch, int64_t tiles, int64_t chunk_rows) {
  c.queries = scratch;
  c.outputs = c.queries + tiles * D_ROWS * BLOCK_M;
  c.maxima = c.outputs + tiles * OUTPUT_ROWS * BLOCK_M;
  c.denominators = c.maxima + chunk_rows;
  c.keys = c.denominators + chunk_rows;
  c.values = c.keys + BLOCK_N * D;
  c.scores = c.values + DV / PANEL * VALUE_PANEL;
  c.row = reinterpret_cast<Row*>(c.scores + BLOCK_N * BLOCK_M);
}

static inline __attribute__((always_inline)) void start_products(Chunk&) {}
static inline __attribute__((always_inline)) void end_products() {}

$if by_blocks  // blocksparse_attention
#include "blocksparse_attention/block_chunk_entry.h"
$else
#include "flash_attention/attention_chunk_entry.h"
$end
