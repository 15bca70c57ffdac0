// grouped_matmul, forward, on GPUs with mma.sync: a block makes a tile of out, of one group's rows. Tiles of both factors come by
// asynchronous copies, STAGES - 1 steps ahead. 16-bit types, everything aligned to 16 bytes.
#include "device/gpu.h"
#include "device/tile.h"
#include "device/grouped_walk.h"

$require block_m % (warps_m * 16) == 0 and block_n % (warps_n * 16) == 0 and depth % 16 == 0
using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCK_M = ${block_m};    // rows of a tile
constexpr int BLOCK_N = ${block_n};    // columns
constexpr int DEPTH = ${depth};        // products an element, a step
constexpr int STAGES = ${stages};      // steps in shared memory
constexpr int WARPS_M = ${warps_m}, WARPS_N = ${warps_n}, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int M_TILES = BLOCK_M / WARPS_M / 16, N_TILES = BLOCK_N / WARPS_N / 8;
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched}, ADDS = ${adds};
constexpr int TOGETHER = 8;  // bands of a group whose tiles come one after another

using LhsTile = Tile<Element, BLOCK_M, DEPTH>;
using RhsTile = Tile<Element, TRANSPOSED ? BLOCK_N : DEPTH, TRANSPOSED ? DEPTH : BLOCK_N>;
constexpr int STAGE = LhsTile::BYTES + RhsTile::BYTES;
using Sums = float[M_TILES][N_TILES][4];

// Starts copying a tile: `matrix` is the first element of its first row; rows and columns that the matrix has from there on, else zeros.
template <int ROWS, int COLUMNS>
static inline void copy_tile(const Tile<Element, ROWS, COLUMNS>& to, const Element* matrix, int64_t stride, int rows, int64_t columns) {
  constexpr int CHUNKS = COLUMNS / 8;
#pragma unroll
  for (int first = 0; first < ROWS * CHUNKS; first += THREADS) {
    const int i = first + thread_x(), row = i / CHUNKS, column = i % CHUNKS * 8;
    if (ROWS * CHUNKS % THREADS != 0 && i >= ROWS * CHUNKS) break;
    copy_async_16(to.at(row, column), matrix + row * stride + column, row < rows && column < columns);
  }
}

static inline void multiply(Sums& sums, const LhsTile& lhs, const RhsTile& rhs, int row, int column) {
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    uint32_t a[M_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) lhs.load_a(a[m], row + 16 * m, k);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
      uint32_t b[4];
      if constexpr (TRANSPOSED)
        rhs.load_b(b, column + 8 * n, k);
      else
        rhs.load_b_transposed(b, k, column + 8 * n);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        mma_16x8x16<Element>(sums[m][n], a[m], b[0], b[1]);
        mma_16x8x16<Element>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// `out`, `existing`: the tile's first element. Two elements at once: columns are even.
static inline void store(const Sums& sums, Out* out, int64_t out_stride, const Out* existing, int64_t existing_stride, int rows, int64_t columns,
                         int row, int column) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row + 16 * m + 8 * h + lane() / 4;
      if (r >= rows) continue;
#pragma unroll
      for (int n = 0; n < N_TILES; ++n) {
        const int c = column + 8 * n + lane() % 4 * 2;
        if (c >= columns) continue;
        float low = sums[m][n][2 * h], high = sums[m][n][2 * h + 1];
        if constexpr (ADDS) {
          low += to_float(existing[r * existing_stride + c]);
          high += to_float(existing[r * existing_stride + c + 1]);
        }
        store_pack(out + r * out_stride + c, Pack<Out, 2>{{from_float<Out>(low), from_float<Out>(high)}});
      }
    }
}

KERNEL(THREADS, ${blocks}) grouped_matmul(${parameters('grouped_matmul')}) {
  GroupWalk<16, TOGETHER> walk(group_sizes, static_cast<int>(group_count), static_cast<int>(M), static_cast<int>(column_blocks), BLOCK_M);
  GroupTile tile;
  if (!walk.find(block_x(), tile)) return;
  const int batch = BATCHED ? tile.group / static_cast<int>(G) : 0, group = tile.group - batch * static_cast<int>(G);
  const bool held_here = BATCHED || (tile.group >= group_offset && tile.group < group_offset + held);
  const int64_t first_column = static_cast<int64_t>(tile.column) * BLOCK_N, columns = N - first_column;
  const int rows = tile.end - tile.row, steps = held_here ? static_cast<int>((K + DEPTH - 1) / DEPTH) : 0;
  const Element* const left = lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + tile.row * lhs_stride;
  const Element* const right =
      rhs + batch * rhs_batch + (group - (BATCHED ? 0 : group_offset)) * rhs_group + first_column * (TRANSPOSED ? rhs_stride : 1);

  const SharedPointer memory = shared_pointer(dynamic_shared());
  const auto start_copy = [&](int step) {
    if (step < steps) {
      const SharedPointer stage = memory + step % STAGES * STAGE;
      const int64_t k = static_cast<int64_t>(step) * DEPTH, left_k = K - k;
      copy_tile(LhsTile{stage}, left + k, lhs_stride, rows, left_k);
      if constexpr (TRANSPOSED)
        copy_tile(RhsTile{stage + LhsTile::BYTES}, right + k, rhs_stride, static_cast<int>(columns < BLOCK_N ? columns : BLOCK_N), left_k);
      else
        copy_tile(RhsTile{stage + LhsTile::BYTES}, right + k * rhs_stride, rhs_stride, static_cast<int>(left_k < DEPTH ? left_k : DEPTH), columns);
    }
    copy_async_commit();
  };
  for (int step = 0; step < STAGES - 1; ++step) start_copy(step);

  const int row = warp() / WARPS_N * (M_TILES * 16), column = warp() % WARPS_N * (N_TILES * 8);
  Sums sums = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<STAGES - 2>();
    sync_block();  // the step is there for all, and all are done with the one whose place is copied to next
    start_copy(step + STAGES - 1);
    const SharedPointer stage = memory + step % STAGES * STAGE;
    multiply(sums, LhsTile{stage}, RhsTile{stage + LhsTile::BYTES}, row, column);
  }
  const Out* const there = ADDS ? existing_out + batch * existing_batch + (BATCHED ? group * existing_group : 0) + tile.row * existing_stride + first_column : nullptr;
  store(sums, out + batch * out_batch + (BATCHED ? group * out_group : 0) + tile.row * out_stride + first_column, out_stride, there,
        existing_stride, rows, columns, row, column);
}
