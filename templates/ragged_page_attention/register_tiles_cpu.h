// CPU vocabulary of ragged_page_attention: the products of a chunk's tiles in register tiles of f32. Part of tiles_cpu.h, whose template has defined
// PANEL and VALUE_PANEL besides.
#pragma once

struct Chunk : ChunkRows {
  float* keys;    // [BLOCK_N][D]
  float* values;  // [D / PANEL][VALUE_PANEL], each [BLOCK_N][PANEL]
};
constexpr int64_t STEP = PANEL;                          // keys
constexpr int64_t TILE_QUERIES = OUTPUT_ROWS * BLOCK_M;  // floats: [OUTPUT_ROWS][BLOCK_M]

// Into scratch for `tiles` row tiles.
static inline void lay_out(Chunk& c, float* scratch, int64_t tiles, int64_t chunk_rows) {
  c.queries = scratch;
  c.outputs = c.queries + tiles * TILE_QUERIES;
  c.maxima = c.outputs + tiles * OUTPUT_ROWS * BLOCK_M;
  c.denominators = c.maxima + chunk_rows;
  c.keys = c.denominators + chunk_rows;
  c.values = c.keys + BLOCK_N * D;
  c.scores = c.values + D / PANEL * VALUE_PANEL;
  c.row = reinterpret_cast<Row*>(c.scores + BLOCK_N * BLOCK_M);
}
// What scores are multiplied by besides.
static inline float query_unit(const RowSource&) { return 1; }
static inline void start_products(Chunk&) {}
static inline void end_products() {}

static void load_queries(Chunk& c, const RowSource& source) {
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    float* to = c.queries + r / BLOCK_M * TILE_QUERIES + r % BLOCK_M;
    alignas(64) float rows[LANES][OUTPUT_ROWS];
    for (int lane = 0; lane < LANES; ++lane) source.load(rows[lane], c.sequence.first_query + c.row[r + lane].token, c.row[r + lane].head, OUTPUT_ROWS);
    for (int64_t d = 0; d < D; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) block[lane] = load_floats(rows[lane] + d);
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) store_floats(to + (d + lane) * BLOCK_M, block[lane]);
    }
  }
}

// Keys and values [first, first + count); rows of keys up to a whole panel are zeroed.
static void load_block(Chunk& c, int64_t first, int64_t count) {
  constexpr int64_t PIECE = PANEL < LANES ? PANEL : LANES;
  Integers largest = {};
  for (int64_t j = 0; j < count; ++j) {
    const int64_t place = c.pages.place(first + j);
    const Cached *k = c.pages.keys + place, *v = c.pages.values + place;
    float* to = c.keys + j * D;
    for (int64_t d = 0; d < D; d += LANES) {
      const Floats key = load_chunk<D>(k, d / LANES), value = load_chunk<D>(v, d / LANES);
      const Integers magnitude = reinterpret_cast<Integers>(value) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
      float lanes[LANES];
      store_some(to + d, key, D - d);
      store_floats(lanes, value);
      for (int64_t i = 0; i < LANES && d + i < D; i += PIECE)
        __builtin_memcpy(c.values + (d + i) / PANEL * VALUE_PANEL + j * PANEL + (d + i) % PANEL, lanes + i, PIECE * sizeof(float));
    }
  }
  __builtin_memset(c.keys + count * D, 0, (PANEL - count % PANEL) % PANEL * D * sizeof(float));
  c.finite_values = !any(largest >= splat_integer(0x7f800000));
}

// Scores of keys [t.begin, t.end), and their maxima.
static inline __attribute__((always_inline)) void multiply_keys(const Chunk& c, Tile<VECTORS>& t, const float* queries) {
  for (int64_t r = 0; r < BLOCK_M; ++r) t.largest[r] = -INFINITE;
  for (int64_t j = t.begin; j < t.end; j += PANEL)
    panel_product<PANEL, VECTORS, D, 1, false>(c.keys + j * D, queries, D, t.scores + j * BLOCK_M, t.largest);
}

// The products have taken them, but of keys past the last as well.
static inline void take_maxima(Tile<VECTORS>& t) {
  if (t.end % PANEL != 0) mask_range(t);
}

// outputs += weights * values.
static inline __attribute__((always_inline)) void add_values(const Chunk& c, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < D; d += PANEL)
    panel_product<PANEL, VECTORS, 1, PANEL, true>(c.values + d / PANEL * VALUE_PANEL + t.begin * PANEL, t.scores + t.begin * BLOCK_M,
                                                  t.end - t.begin, t.outputs + d * BLOCK_M, nullptr);
}

// outputs += weights * values, where a value behind a weight of 0 counts as 0 even if it is NaN: another row's key, masked in this one.
static void __attribute__((noinline)) add_values_guarded(const Chunk& c, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < D; ++d)
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
