// mla_attention, tiles: tiles of query rows, which lie along the vectors, against blocks of keys in the worker's scratch; flash_attention's softmax
// (attention_tile.h) between two products on one micro-kernel, panel_product. Two forms, which the config chooses:
//   expanded: rows are the query tokens of one head. Each block of latent rows is expanded by the head's part of w_kc and w_vc where it is met, and serves
//             all row tiles of the work item; expanded keys are never in memory.
//   absorbed: rows are the query tokens and heads of a sequence. A first launch gives each query its head's part of w_kc, so that a latent row is the key,
//             and the value, of all rows; a last one puts the parts of a row's keys together and gives the sum to w_vc.
#include "device/cpu.h"
#include "device/attention/attention_chunk.h"
#include "device/matrix/panel.h"
#include "device/tile/row_sums.h"

$require block_n % 16 == 0
$require 8 % panel == 0
using Element = ${ctype(E)};
using Cached = Element;
constexpr bool ABSORBED = ${absorbed};
constexpr int64_t R = ${R}, ROPE = ${Dr}, OWN = ${Dn}, VALUE = ${Dv};  // features: latent ones, of rope, of a head's key without rope and value
constexpr int PANEL = ${panel};                                       // keys, or output features, of a register tile
constexpr int VECTORS = ${vectors};                                   // vectors of query rows of a register tile
constexpr int64_t BLOCK_M = VECTORS * LANES;                          // query rows a tile
constexpr int64_t BLOCK_N = ${block_n};                               // keys a block
constexpr int64_t WIDTH = 2 * LANES;                                  // features that are expanded at a time
constexpr int64_t KEY = (ABSORBED ? R : OWN) + ROPE, FEATURES = ABSORBED ? R : VALUE;  // of a key and of a value as rows meet them
constexpr int64_t QUERY_ROWS = KEY + 2 * LANES, OUTPUT_ROWS = (FEATURES + WIDTH - 1) / WIDTH * WIDTH;
#include "mla_attention/latent_call.h"
$if absorbed
#include "mla_attention/absorbed_tiles.h"
$else
#include "mla_attention/expanded_tiles.h"
$end

// A work item: `rows` query rows in `tiles` row tiles, and its scratch.
struct Chunk {
  const ScoreRules& rules;
  Sequence sequence;
  int64_t rows, tiles;
  float* queries;                // [tile][QUERY_ROWS][BLOCK_M]
  float* outputs;                // [tile][OUTPUT_ROWS][BLOCK_M], sums of weights * values
  float *maxima, *denominators;  // [tile][BLOCK_M]
  float* scores;                 // [BLOCK_N][BLOCK_M]
  Row* row;                      // [tile][BLOCK_M]; past `rows`: copies of the last row
  KeyBlock keys;

  float* lay_out(float* scratch, int64_t most_tiles) {
    queries = scratch;
    outputs = queries + most_tiles * QUERY_ROWS * BLOCK_M;
    maxima = outputs + most_tiles * OUTPUT_ROWS * BLOCK_M;
    denominators = maxima + most_tiles * BLOCK_M;
    scores = denominators + most_tiles * BLOCK_M;
    row = reinterpret_cast<Row*>(scores + BLOCK_N * BLOCK_M);
    return reinterpret_cast<float*>(row + most_tiles * BLOCK_M);
  }
};

// Features [to, to + count) of LANES rows of a tile, each from where place(row) says.
template <class Place> static void load_features(const Chunk& c, int64_t first_row, int64_t to, int64_t count, const Place& place) {
  float* at = c.queries + first_row / BLOCK_M * QUERY_ROWS * BLOCK_M + to * BLOCK_M + first_row % BLOCK_M;
  for (int64_t d = 0; d < count; d += LANES) {
    Floats block[LANES];
    for (int lane = 0; lane < LANES; ++lane) block[lane] = load_some(place(c.row[first_row + lane]) + d, count - d);
    transpose(block);
    for (int lane = 0; lane < LANES; ++lane) store_floats(at + (d + lane) * BLOCK_M, block[lane]);
  }
}

// outputs += weights * values, where a value behind a weight of 0 counts as 0 even if it is NaN: another row's key, masked in this one.
static void __attribute__((noinline)) add_values_guarded(const KeyBlock& keys, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < FEATURES; ++d)
    for (int v = 0; v < VECTORS; ++v) {
      Floats sum = {};
      for (int64_t j = t.begin; j < t.end; ++j) {
        const Floats weight = load_floats(t.at(j, v));
        sum += weight == Floats{} ? Floats{} : weight * keys.value(d)[j * KeyBlock::VALUE_STEP];
      }
      float* output = t.outputs + d * BLOCK_M + v * LANES;
      store_floats(output, load_floats(output) + sum);
    }
}

// Row tile `tile` against the `count` keys of the block, which start at key `first`.
static void attend_block(Chunk& c, int64_t tile, int64_t first, int64_t count) {
  Tile<VECTORS> t;
  KeyRange every;
  if (!start_tile<PANEL>(t, c, tile, OUTPUT_ROWS, first, count, every)) return;
  for (int64_t j = t.begin; j < t.end; j += PANEL) {
    __builtin_memset(t.scores + j * BLOCK_M, 0, PANEL * BLOCK_M * sizeof(float));
    c.keys.add_scores(c.queries + tile * QUERY_ROWS * BLOCK_M, j, t.scores + j * BLOCK_M);
  }
  c.rules.adjusts() ? adjust(c.rules, t) : mask_range(t);
  follow_maxima(t, FEATURES);
  weigh(t);
  if (!c.keys.finite) return add_values_guarded(c.keys, t);
  for (int64_t d = 0; d < FEATURES; d += PANEL)
    panel_product<PANEL, VECTORS, 1, KeyBlock::VALUE_STEP, true>(c.keys.value(d) + t.begin * KeyBlock::VALUE_STEP, t.scores + t.begin * BLOCK_M,
                                                                 t.end - t.begin, t.outputs + d * BLOCK_M, nullptr);
}

#include "mla_attention/absorbed_products.h"
$if absorbed
#include "mla_attention/absorbed_entry.h"
$else
#include "mla_attention/expanded_entry.h"
$end
