// grouped_matmul, forward, on GPUs: any types and strides, products and sums in f32 as they are. A block of 256 threads makes a square tile of
// out; a thread has a part of it in registers, and the factors pass through shared memory as f32.
#include "device/gpu.h"
#include "device/grouped_walk.h"

$require tile % 64 == 0
using Left = ${ctype(E)};
using Right = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int TILE = ${tile}, DEPTH = 16, THREADS = 256;
constexpr int QUADS = TILE / 64;                  // of rows and of columns a thread, 64 apart
constexpr int LOADS = TILE * DEPTH / THREADS;     // elements of a factor a thread brings, a step
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};
constexpr int TOGETHER = 8;  // bands of a group whose tiles come one after another

using Plane = Pack<float, 4>[DEPTH][TILE / 4 + 1];  // a factor's tile, depth by depth; the last column is never used: it spreads the banks

// One factor on its way: from global memory to registers, from there to shared memory. ALONG: neighbours in memory lie along the depth, not
// across it.
template <class T, bool ALONG> struct Mover {
  const T* from;      // the tile's first element
  int64_t stride;     // from row to row of the matrix
  int64_t across;     // elements that the matrix has from there on, across the depth
  float held[LOADS];

  static int depth_of(int i) { return ALONG ? (i * THREADS + thread_x()) % DEPTH : (i * THREADS + thread_x()) / TILE; }
  static int place_of(int i) { return ALONG ? (i * THREADS + thread_x()) / DEPTH : (i * THREADS + thread_x()) % TILE; }

  void load(int64_t k, int64_t depths) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int64_t depth = k + depth_of(i), place = place_of(i);
      held[i] = 0;
      if (depth < depths && place < across) held[i] = to_float(from[ALONG ? place * stride + depth : depth * stride + place]);
    }
  }
  void put(Plane& plane) const {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) plane[depth_of(i)][place_of(i) / 4].at[place_of(i) % 4] = held[i];
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

KERNEL(THREADS, 1) grouped_matmul(${parameters('grouped_matmul')}) {
  __shared__ Plane left_plane, right_plane;
  GroupWalk<4, TOGETHER> walk(group_sizes, static_cast<int>(group_count), static_cast<int>(M), static_cast<int>(column_blocks), TILE);
  GroupTile tile;
  if (!walk.find(block_x(), tile)) return;
  const int batch = BATCHED ? tile.group / static_cast<int>(G) : 0, group = tile.group - batch * static_cast<int>(G);
  const bool held_here = BATCHED || (tile.group >= group_offset && tile.group < group_offset + held);
  const int64_t first_column = static_cast<int64_t>(tile.column) * TILE, columns = N - first_column, depths = held_here ? K : 0;
  const int rows = tile.end - tile.row;
  Mover<Left, true> left{lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + tile.row * lhs_stride, lhs_stride, rows, {}};
  Mover<Right, TRANSPOSED> right{
      rhs + batch * rhs_batch + (group - (BATCHED ? 0 : group_offset)) * rhs_group + first_column * (TRANSPOSED ? rhs_stride : 1), rhs_stride,
      columns, {}};

  Sums sums = {};
  left.load(0, depths);
  right.load(0, depths);
#pragma unroll 1
  for (int64_t k = 0; k < depths; k += DEPTH) {
    left.put(left_plane);
    right.put(right_plane);
    sync_block();
    left.load(k + DEPTH, depths);
    right.load(k + DEPTH, depths);
    multiply(sums, left_plane, right_plane);
    sync_block();
  }

  Out* const to = out + batch * out_batch + (BATCHED ? group * out_group : 0) + tile.row * out_stride + first_column;
  const Out* const there =
      existing_out ? existing_out + batch * existing_batch + (BATCHED ? group * existing_group : 0) + tile.row * existing_stride + first_column : nullptr;
#pragma unroll
  for (int m = 0; m < 4 * QUADS; ++m) {
    const int row = m / 4 * 64 + thread_x() / 16 * 4 + m % 4;
#pragma unroll
    for (int n = 0; n < 4 * QUADS; ++n) {
      const int column = n / 4 * 64 + thread_x() % 16 * 4 + n % 4;
      if (row >= rows || column >= columns) continue;
      float sum = sums[m][n];
      if (there) sum += to_float(there[row * existing_stride + column]);
      to[row * out_stride + column] = from_float<Out>(sum);
    }
  }
}
