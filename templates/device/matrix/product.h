// CPU vocabulary: blocks of a matrix product, c[i][j] = sum over s of left(i, s) * right(s, j), in f32 registers from packed panels.
#pragma once
#include "device/matrix/product_pack.h"

// One register tile: c[p][:] (+)= sum over s of a[p * A_ROW + s * A_STEP] * b[s][:], for p < ROWS. Rows of b and c are VECTORS * LANES
// floats, without gaps.
template <int ROWS, int VECTORS, int64_t A_ROW, int64_t A_STEP, bool ADD>
static inline __attribute__((always_inline)) void tile_product(const float* __restrict a, const float* __restrict b, int64_t steps,
                                                               float* __restrict c) {
  constexpr int64_t WIDTH = VECTORS * LANES;
  Floats sum[ROWS][VECTORS];
#pragma GCC unroll 64
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) sum[p][v] = ADD ? load_floats(c + p * WIDTH + v * LANES) : Floats{};
#pragma GCC unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    Floats row[VECTORS];
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) row[v] = load_floats(b + s * WIDTH + v * LANES);
#pragma GCC unroll 64
    for (int p = 0; p < ROWS; ++p) {
      const Floats factor = splat(a[p * A_ROW + s * A_STEP]);
#pragma GCC unroll 64
      for (int v = 0; v < VECTORS; ++v) sum[p][v] += factor * row[v];
    }
  }
#pragma GCC unroll 64
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) store_floats(c + p * WIDTH + v * LANES, sum[p][v]);
}

// The same for `rows` <= ROWS rows: no work for rows that are not there.
template <int ROWS, int VECTORS, int64_t A_ROW, int64_t A_STEP>
static __attribute__((noinline)) void add_tile(const float* a, const float* b, int64_t steps, float* c, int64_t rows, bool fresh) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return add_tile<ROWS - 1, VECTORS, A_ROW, A_STEP>(a, b, steps, c, rows, fresh);
  if (fresh)
    tile_product<ROWS, VECTORS, A_ROW, A_STEP, false>(a, b, steps, c);
  else
    tile_product<ROWS, VECTORS, A_ROW, A_STEP, true>(a, b, steps, c);
}

// ROWS_A_TILE x VECTORS vectors in registers; DEPTH: most steps between two visits of a tile.
template <int ROWS_A_TILE, int VECTORS_A_TILE, int64_t MOST_STEPS>
struct ProductShape {
  static constexpr int ROWS = ROWS_A_TILE, VECTORS = VECTORS_A_TILE;
  static constexpr int64_t WIDTH = VECTORS * LANES, DEPTH = MOST_STEPS, TILE = ROWS * WIDTH;
};

// Computes `rows` x `columns` of the product. `left` and `right` pack and prefetch (product_pack.h); finish(row, column, rows, columns, c)
// takes each finished tile, rows of WIDTH floats. Scratch, in floats: Left::floats(rows), then DEPTH * WIDTH, then TILE for each tile of
// the block if steps > DEPTH, else one TILE.
//
// The panel of `right` is packed just before its use; while the tiles of one panel are computed the next one is prefetched, and so is the
// next block of `left`: memory is read at the pace of the arithmetic.
template <class Shape, class Left, class Right, class Finish>
static void multiply_block(const Left& left, const Right& right, int64_t rows, int64_t columns, int64_t steps, float* scratch,
                           const Finish& finish) {
  const int64_t tiles = (rows + Shape::ROWS - 1) / Shape::ROWS, panels = (columns + Shape::WIDTH - 1) / Shape::WIDTH;
  const int64_t blocks = steps > Shape::DEPTH ? (steps + Shape::DEPTH - 1) / Shape::DEPTH : 1;
  const int64_t depth = blocks > 1 ? ((steps + blocks - 1) / blocks + LANES - 1) / LANES * LANES : steps;
  float *const a = scratch, *const b = a + Left::floats(rows), *const c = b + Shape::DEPTH * Shape::WIDTH;
  for (int64_t first = 0, block = 0; block < blocks; ++block, first += depth) {
    const int64_t count = steps - first < depth ? steps - first : depth;
    const bool is_last = block + 1 == blocks;
    left.pack(a, rows, first, count);
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t column = panel * Shape::WIDTH, width = columns - column < Shape::WIDTH ? columns - column : Shape::WIDTH;
      right.pack(b, column, width, first, count);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = tile * Shape::ROWS, height = rows - row < Shape::ROWS ? rows - row : Shape::ROWS;
        float* to = c + (blocks > 1 ? (panel * tiles + tile) * Shape::TILE : 0);
        if (panel + 1 < panels)
          right.prefetch(column + Shape::WIDTH, first, count, tile, tiles);
        else if (!is_last)
          right.prefetch(0, first + depth, depth, tile, tiles);
        if (!is_last) left.prefetch(rows, first + depth, depth, panel * tiles + tile, panels * tiles);
        add_tile<Shape::ROWS, Shape::VECTORS, Left::ROW, Left::STEP>(a + Left::tile_at(row), b, count, to, height, block == 0);
        if (is_last) finish(row, column, height, width, to);
      }
    }
  }
}
