// tgmm, forward, on GPUs: any types and strides, products and sums in f32 as they are. A block of 256 threads makes a square tile of one group's
// matrix; a thread has a part of it in registers, and the factors pass through shared memory as f32.
#include "device/gpu.h"
#include "device/group_rows.h"

$require tile % 64 == 0
using LhsElement = ${ctype(E)};
using DoutElement = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int TILE = ${tile}, DEPTH = 16, THREADS = 256;
constexpr int QUADS = TILE / 64;               // of rows and of columns a thread, 64 apart
constexpr int LOADS = TILE * DEPTH / THREADS;  // elements of a factor a thread brings, a step
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};

using Plane = Pack<float, 4>[DEPTH][TILE / 4];  // a factor's tile, row by row

// One factor on its way: from global memory to registers, from there to shared memory.
template <class T> struct Mover {
  const T* from;    // the tile's first element
  int64_t stride;   // from row to row
  int64_t columns;  // that the matrix has from there on
  float held[LOADS];

  static int row_of(int i) { return (i * THREADS + thread_x()) / TILE; }
  static int column_of(int i) { return (i * THREADS + thread_x()) % TILE; }

  void load(int first, int rows) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int row = first + row_of(i);
      held[i] = 0;
      if (row < rows && column_of(i) < columns) held[i] = to_float(from[row * stride + column_of(i)]);
    }
  }
  void put(Plane& plane) const {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) plane[row_of(i)][column_of(i) / 4].at[column_of(i) % 4] = held[i];
  }
};

using Sums = float[4 * QUADS][4 * QUADS];

static inline void multiply(Sums& sums, const Plane& left, const Plane& right) {
  const int across = thread_x() % 16, down = thread_x() / 16;
#pragma unroll
  for (int k = 0; k < DEPTH; ++k) {
    Pack<float, 4> a[QUADS], b[QUADS];
#pragma unroll
    for (int q = 0; q < QUADS; ++q) a[q] = left[k][16 * q + down], b[q] = right[k][16 * q + across];
#pragma unroll
    for (int m = 0; m < 4 * QUADS; ++m)
#pragma unroll
      for (int n = 0; n < 4 * QUADS; ++n) sums[m][n] += a[m / 4].at[m % 4] * b[n / 4].at[n % 4];
  }
}

// Block x: tile x of all matrices that out holds, matrix after matrix.
KERNEL(THREADS, 1) tgmm(${parameters('tgmm')}) {
  __shared__ Plane lhs_plane, dout_plane;
  const int across = static_cast<int>(blocks_n), tiles = static_cast<int>(blocks_m) * across;
  const int matrix = block_x() / tiles, tile = block_x() - matrix * tiles;
  const int batch = BATCHED ? matrix / static_cast<int>(G) : 0, group = BATCHED ? matrix - batch * static_cast<int>(G) : matrix;
  const GroupRows found = rows_of_group(group_sizes, group + static_cast<int>(group_offset), static_cast<int>(M));
  const int64_t first_m = static_cast<int64_t>(tile / across) * TILE, first_n = static_cast<int64_t>(tile % across) * TILE;
  const int64_t first_k = TRANSPOSED ? first_n : first_m, first_of_dout = TRANSPOSED ? first_m : first_n;
  const int rows = found.end - found.begin;
  Mover<LhsElement> left{lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + found.begin * lhs_stride + first_k, lhs_stride, K - first_k, {}};
  Mover<DoutElement> right{dout + batch * dout_batch + (BATCHED ? group * dout_group : 0) + found.begin * dout_stride + first_of_dout, dout_stride,
                           N - first_of_dout, {}};

  Sums sums = {};
  left.load(0, rows);
  right.load(0, rows);
#pragma unroll 1
  for (int row = 0; row < rows; row += DEPTH) {
    left.put(lhs_plane);
    right.put(dout_plane);
    sync_block();
    left.load(row + DEPTH, rows);
    right.load(row + DEPTH, rows);
    if constexpr (TRANSPOSED)
      multiply(sums, dout_plane, lhs_plane);
    else
      multiply(sums, lhs_plane, dout_plane);
    sync_block();
  }

  Out* const to = out + batch * out_batch + group * out_group + first_m * out_stride + first_n;
  const int64_t height = (TRANSPOSED ? N : K) - first_m, width = (TRANSPOSED ? K : N) - first_n;
#pragma unroll
  for (int m = 0; m < 4 * QUADS; ++m) {
    const int row = m / 4 * 64 + thread_x() / 16 * 4 + m % 4;
#pragma unroll
    for (int n = 0; n < 4 * QUADS; ++n) {
      const int column = n / 4 * 64 + thread_x() % 16 * 4 + n % 4;
      if (row < height && column < width) to[row * out_stride + column] = from_float<Out>(sums[m][n]);
    }
  }
}
