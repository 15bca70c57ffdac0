// CPU vocabulary of ragged_page_attention: the products of a chunk's tiles on AMX tiles of bf16 (device/attention/amx_tile.h). Part of tiles_cpu.h. Caches of
// bytes are widened to bf16, which has all their numbers.
#pragma once

constexpr int64_t D_PAD = OUTPUT_ROWS, DV = D;
struct Chunk : ChunkRows {
  Element* keys;    // [BLOCK_N][D_PAD]
  Element* values;  // [OUTPUT_ROWS][BLOCK_N]
  Words* weights;   // [BLOCK_N / 2][VECTORS]: two bf16 a word, of keys 2 p and 2 p + 1
};
#include "device/attention/amx_tile.h"

constexpr int64_t STEP = 32;                            // keys
constexpr int64_t TILE_QUERIES = D_PAD / 2 * BLOCK_M;   // words: [D_PAD / 2][BLOCK_M], bits of two bf16

// Into scratch for `tiles` row tiles.
static inline void lay_out(Chunk& c, float* scratch, int64_t tiles, int64_t chunk_rows) {
  c.queries = scratch;
  c.outputs = c.queries + tiles * TILE_QUERIES;
  c.maxima = c.outputs + tiles * OUTPUT_ROWS * BLOCK_M;
  c.denominators = c.maxima + chunk_rows;
  c.scores = c.denominators + chunk_rows;
  c.weights = reinterpret_cast<Words*>(c.scores + BLOCK_N * BLOCK_M);
  c.keys = reinterpret_cast<Element*>(c.weights + BLOCK_N / 2 * VECTORS);
  c.values = c.keys + BLOCK_N * D_PAD;
  c.row = reinterpret_cast<Row*>(c.values + BLOCK_N * OUTPUT_ROWS);
}
static inline void start_products(Chunk& c) {
  __builtin_memset(c.values, 0, BLOCK_N * OUTPUT_ROWS * sizeof(Element));  // features past D stay 0
  amx_configure();
}
static inline void end_products() { amx_release(); }

// Queries that are rounded as a cache stores numbers become bf16 without their scale, which scores are multiplied by.
static inline float query_unit(const RowSource& source) { return source.q_scale && *source.q_scale != 0 ? *source.q_scale : 1; }

// Rounded to bf16.
static inline Floats rounded(Floats x) {
  bfloat16 elements[LANES];
  store_some(elements, x, LANES);
  return load_floats(elements);
}

// The bits of numbers that are bf16, in pairs: low halves of even numbers, high halves of odd ones.
static inline Words pair_of(Floats even, Floats odd) { return reinterpret_cast<Words>(even) >> 16 | (reinterpret_cast<Words>(odd) & 0xffff0000); }

static void load_queries(Chunk& c, const RowSource& source) {
  const float unit = query_unit(source);
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    float* to = c.queries + r / BLOCK_M * TILE_QUERIES + r % BLOCK_M;
    alignas(64) float rows[LANES][D_PAD];
    for (int lane = 0; lane < LANES; ++lane) source.load(rows[lane], c.sequence.first_query + c.row[r + lane].token, c.row[r + lane].head, D_PAD);
    for (int64_t d = 0; d < D_PAD; d += 2) {
      Floats even, odd;
      for (int lane = 0; lane < LANES; ++lane) even[lane] = rows[lane][d], odd[lane] = rows[lane][d + 1];
      store_floats(to + d / 2 * BLOCK_M, reinterpret_cast<Floats>(pair_of(rounded(even / unit), rounded(odd / unit))));
    }
  }
}

// Where 32 keys of a block and their values lie; null past the block's last.
struct CachedRows {
  const Cached *keys[32], *values[32];

  CachedRows(const RaggedPages& pages, int64_t first, int64_t count) {
    for (int64_t i = 0; i < 32; ++i) {
      const int64_t place = i < count ? pages.place(first + i) : 0;
      keys[i] = i < count ? pages.keys + place : nullptr, values[i] = i < count ? pages.values + place : nullptr;
    }
  }
  // Features [d, d + LANES); zeros past the last one, and of rows that are not there.
  static Floats load(const Cached* row, int64_t d) { return row ? load_some(row + d, D - d) : Floats{}; }
};

// Keys and values [first, first + count); up to a multiple of 32 they are zeroed.
static void load_block(Chunk& c, int64_t first, int64_t count) {
  Integers largest = {};
  for (int64_t j = 0; j < count; j += 32) {
    const CachedRows rows(c.pages, first + j, count - j);
    for (int64_t d = 0; d < D; d += LANES) {
      for (int64_t i = 0; i < 32; ++i) store_some(c.keys + (j + i) * D_PAD + d, CachedRows::load(rows.keys[i], d), LANES);
      Floats block[LANES];
      for (int pair = 0; pair < LANES; ++pair) {
        const Floats even = CachedRows::load(rows.values[2 * pair], d), odd = CachedRows::load(rows.values[2 * pair + 1], d);
        const Integers even_magnitude = reinterpret_cast<Integers>(even) & 0x7fffffff, odd_magnitude = reinterpret_cast<Integers>(odd) & 0x7fffffff;
        largest = even_magnitude > largest ? even_magnitude : largest;
        largest = odd_magnitude > largest ? odd_magnitude : largest;
        block[pair] = reinterpret_cast<Floats>(pair_of(even, odd));
      }
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) __builtin_memcpy(c.values + (d + lane) * BLOCK_N + j, &block[lane], sizeof(Floats));
    }
    if constexpr (D % 32 != 0 && D % 32 <= LANES)
      for (int64_t i = j; i < j + 32; ++i) __builtin_memset(c.keys + i * D_PAD + D_PAD - LANES, 0, LANES * sizeof(Element));
  }
  c.finite_values = !any(largest >= splat_integer(0x7f800000));
}

// outputs += weights * values.
static inline void add_values(const Chunk& c, const Tile<VECTORS>& t) {
  pack_weights(c, t);
  multiply_values(c, t);
}
