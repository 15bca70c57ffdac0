// c = a b by tiles of 64 x 32: warp w has rows 16 w to 16 w + 15. While one stage of 32 products is computed, the next one is copied.
#include "device/gpu.h"

using E = ${ctype(E)};
constexpr int ROWS = 64, COLUMNS = 32, DEPTH = 32;
constexpr int PITCH = DEPTH + ${padding};      // elements between rows of a stage: rows of 8 fall into different banks
constexpr int STAGE = ${stage};                // elements: the tile of a, then that of b
constexpr int THREADS = 128, VECTOR = 8;

// Rows and columns outside the matrix are zeros; rows and columns end at multiples of a vector.
static void copy_tile(E* to, const E* from, int64_t row, int64_t column, int64_t rows, int64_t columns, int tile_rows, int tile_columns) {
  const int vectors = tile_columns / VECTOR;
  for (int i = thread_x(); i < tile_rows * vectors; i += THREADS) {
    const int r = i / vectors, k = i % vectors * VECTOR;
    const bool inside = row + r < rows && column + k < columns;
    copy_async_16(shared_pointer(to + r * PITCH + k), inside ? from + (row + r) * columns + column + k : from, inside);
  }
}

KERNEL(THREADS, 1) gemm(${parameters('gemm')}) {
  E* const stages = reinterpret_cast<E*>(dynamic_shared());
  const int64_t row = static_cast<int64_t>(block_x()) * ROWS, column = static_cast<int64_t>(block_y()) * COLUMNS;
  float sums[COLUMNS / 8][4] = {};

  const auto copy_stage = [&](int64_t k) {
    E* const to = stages + k / DEPTH % 2 * STAGE;
    if (k < K) {
      copy_tile(to, a, row, k, M, K, ROWS, DEPTH);
      copy_tile(to + ROWS * PITCH, b, k, column, K, N, DEPTH, COLUMNS);
    }
    copy_async_commit();
  };

  copy_stage(0);
  for (int64_t k = 0; k < K; k += DEPTH) {
    copy_stage(k + DEPTH);
    copy_async_wait<1>();
    sync_block();
    const E* const left = stages + k / DEPTH % 2 * STAGE;
    const E* const right = left + ROWS * PITCH;
    for (int step = 0; step < DEPTH; step += 16) {
      uint32_t tile[4];
      load_matrices(tile, shared_pointer(left + (16 * warp() + lane() % 16) * PITCH + step + lane() / 16 * 8));
      for (int n = 0; n < COLUMNS; n += 16) {
        uint32_t pair[4];
        load_matrices_transposed(pair, shared_pointer(right + (step + lane() % 16) * PITCH + n + lane() / 16 * 8));
        mma_16x8x16<E>(sums[n / 8], tile, pair[0], pair[1]);
        mma_16x8x16<E>(sums[n / 8 + 1], tile, pair[2], pair[3]);
      }
    }
    sync_block();  // the next turn copies over what was read here
  }

  for (int n = 0; n < COLUMNS / 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const int64_t r = row + 16 * warp() + lane() / 4 + i / 2 * 8, s = column + 8 * n + lane() % 4 * 2 + i % 2;
      if (r < M && s < N) c[r * N + s] = sums[n][i];
    }
}
