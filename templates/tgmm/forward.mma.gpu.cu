// tgmm, forward, on GPUs with mma.sync: a block makes a tile of one group's matrix, summed over the group's rows. Tiles of both factors come by
// asynchronous copies, STAGES - 1 steps ahead. 16-bit types, everything aligned to 16 bytes.
#include "device/gpu.h"
#include "device/tile.h"
#include "device/group_rows.h"

$require block_m % (warps_m * 16) == 0 and block_n % (warps_n * 16) == 0 and depth % 16 == 0
using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCK_M = ${block_m};  // rows of a tile of out
constexpr int BLOCK_N = ${block_n};  // columns
constexpr int DEPTH = ${depth};      // rows of the factors, a step
constexpr int STAGES = ${stages};    // steps in shared memory
constexpr int WARPS_M = ${warps_m}, WARPS_N = ${warps_n}, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int M_TILES = BLOCK_M / WARPS_M / 16, N_TILES = BLOCK_N / WARPS_N / 8;
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};

// out = left^T right; transposed, the factors change places.
using LeftTile = Tile<Element, DEPTH, BLOCK_M>;
using RightTile = Tile<Element, DEPTH, BLOCK_N>;
constexpr int STAGE = LeftTile::BYTES + RightTile::BYTES;
using Sums = float[M_TILES][N_TILES][4];

struct Factor {
  const Element* data;  // of the batch
  int64_t stride, columns;
};

// Starts copying a tile; `matrix` is its first element. Rows and columns that the matrix has from there on, else zeros.
template <int COLUMNS>
static inline void copy_tile(const Tile<Element, DEPTH, COLUMNS>& to, const Element* matrix, int64_t stride, int rows, int64_t columns) {
  constexpr int CHUNKS = COLUMNS / 8;
#pragma unroll
  for (int first = 0; first < DEPTH * CHUNKS; first += THREADS) {
    const int i = first + thread_x(), row = i / CHUNKS, column = i % CHUNKS * 8;
    if (DEPTH * CHUNKS % THREADS != 0 && i >= DEPTH * CHUNKS) break;
    copy_async_16(to.at(row, column), matrix + row * stride + column, row < rows && column < columns);
  }
}

// Operand A of a product with the transpose of a tile: its columns [column, column + 16) are rows of A, its rows [row, row + 16) summed over.
static inline void load_a_transposed(uint32_t (&a)[4], const LeftTile& tile, int row, int column) {
  load_matrices_transposed(a, tile.at(row + lane() % 8 + lane() / 16 * 8, column + lane() / 8 % 2 * 8));
}

static inline void multiply(Sums& sums, const LeftTile& left, const RightTile& right, int row, int column) {
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    uint32_t a[M_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) load_a_transposed(a[m], left, k, row + 16 * m);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
      uint32_t b[4];
      right.load_b_transposed(b, k, column + 8 * n);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        mma_16x8x16<Element>(sums[m][n], a[m], b[0], b[1]);
        mma_16x8x16<Element>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// `out`: the tile's first element. Two elements at once: columns are even.
static inline void store(const Sums& sums, Out* out, int64_t stride, int64_t rows, int64_t columns, int row, int column) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row + 16 * m + 8 * h + lane() / 4;
      if (r >= rows) continue;
#pragma unroll
      for (int n = 0; n < N_TILES; ++n) {
        const int c = column + 8 * n + lane() % 4 * 2;
        if (c < columns)
          store_pack(out + r * stride + c, Pack<Out, 2>{{from_float<Out>(sums[m][n][2 * h]), from_float<Out>(sums[m][n][2 * h + 1])}});
      }
    }
}

// Block x: tile x of all matrices that out holds, matrix after matrix.
KERNEL(THREADS, ${blocks}) tgmm(${parameters('tgmm')}) {
  const int across = static_cast<int>(blocks_n), tiles = static_cast<int>(blocks_m) * across;
  const int matrix = block_x() / tiles, tile = block_x() - matrix * tiles;
  const int batch = BATCHED ? matrix / static_cast<int>(G) : 0, group = BATCHED ? matrix - batch * static_cast<int>(G) : matrix;
  const GroupRows rows = rows_of_group(group_sizes, group + static_cast<int>(group_offset), static_cast<int>(M));
  const Factor of_lhs{lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0), lhs_stride, K};
  const Factor of_dout{dout + batch * dout_batch + (BATCHED ? group * dout_group : 0), dout_stride, N};
  const Factor left = TRANSPOSED ? of_dout : of_lhs, right = TRANSPOSED ? of_lhs : of_dout;
  const int64_t first_m = static_cast<int64_t>(tile / across) * BLOCK_M, first_n = static_cast<int64_t>(tile % across) * BLOCK_N;
  const int steps = (rows.end - rows.begin + DEPTH - 1) / DEPTH;

  const SharedPointer memory = shared_pointer(dynamic_shared());
  const auto start_copy = [&](int step) {
    if (step < steps) {
      const SharedPointer stage = memory + step % STAGES * STAGE;
      const int row = rows.begin + step * DEPTH;
      copy_tile(LeftTile{stage}, left.data + row * left.stride + first_m, left.stride, rows.end - row, left.columns - first_m);
      copy_tile(RightTile{stage + LeftTile::BYTES}, right.data + row * right.stride + first_n, right.stride, rows.end - row, right.columns - first_n);
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
    multiply(sums, LeftTile{stage}, RightTile{stage + LeftTile::BYTES}, row, column);
  }
  store(sums, out + batch * out_batch + group * out_group + first_m * out_stride + first_n, out_stride, left.columns - first_m,
        right.columns - first_n, row, column);
}
