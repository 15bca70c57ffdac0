// GPU vocabulary: a square tile of a product in f32, any types and strides, by a block of 256 threads. A thread has a part of it in
// registers, and the factors pass through shared memory as f32.
#pragma once
#include "device/gpu.h"

constexpr int SQUARE_DEPTH = 16, SQUARE_THREADS = 256;

// A factor's tile, depth by depth. ALONG: neighbours in memory lie along the depth, not across it; then a last column that is never used
// spreads the banks.
template <int TILE, bool ALONG> using Plane = Pack<float, 4>[SQUARE_DEPTH][TILE / 4 + ALONG];

// One factor on its way: from global memory to registers, from there to shared memory.
template <class T, int TILE, bool ALONG> struct Mover {
  static constexpr int LOADS = TILE * SQUARE_DEPTH / SQUARE_THREADS;  // elements that a thread brings, a step
  using ItsPlane = Plane<TILE, ALONG>;
  const T* from;   // the tile's first element
  int64_t stride;  // from row to row of the matrix
  int64_t across;  // elements that the matrix has from there on, across the depth
  float held[LOADS];

  static int number(int i) { return i * SQUARE_THREADS + thread_x(); }
  static int depth_of(int i) { return ALONG ? number(i) % SQUARE_DEPTH : number(i) / TILE; }
  static int place_of(int i) { return ALONG ? number(i) / SQUARE_DEPTH : number(i) % TILE; }

  template <class Count> void load(Count k, Count depths) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const Count depth = k + depth_of(i), place = place_of(i);
      held[i] = 0;
      if (depth < depths && place < across) held[i] = to_float(from[ALONG ? place * stride + depth : depth * stride + place]);
    }
  }
  void put(ItsPlane& plane) const {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) plane[depth_of(i)][place_of(i) / 4].at[place_of(i) % 4] = held[i];
  }
};

// What a thread has: fours of rows and of columns, 64 apart.
template <int TILE> using SquareSums = float[TILE / 16][TILE / 16];

template <int TILE, class Left, class Right>
static inline void multiply_planes(SquareSums<TILE>& sums, const Left& left, const Right& right) {
  constexpr int QUADS = TILE / 64;
  const int across = thread_x() % 16, down = thread_x() / 16;
#pragma unroll
  for (int k = 0; k < SQUARE_DEPTH; ++k) {
    Pack<float, 4> a[QUADS], b[QUADS];
#pragma unroll
    for (int q = 0; q < QUADS; ++q) a[q] = left[k][16 * q + down], b[q] = right[k][16 * q + across];
#pragma unroll
    for (int m = 0; m < 4 * QUADS; ++m)
#pragma unroll
      for (int n = 0; n < 4 * QUADS; ++n) sums[m][n] += a[m / 4].at[m % 4] * b[n / 4].at[n % 4];
  }
}

// sums += left times right, over `depths`, which int or int64_t counts: the narrower needs fewer registers.
template <int TILE, class Left, class Right, class Count>
static inline void multiply_square(SquareSums<TILE>& sums, Left& left, Right& right, Count depths) {
  __shared__ typename Left::ItsPlane left_plane;
  __shared__ typename Right::ItsPlane right_plane;
  left.load(Count{0}, depths);
  right.load(Count{0}, depths);
#pragma unroll 1
  for (Count k = 0; k < depths; k += SQUARE_DEPTH) {
    left.put(left_plane);
    right.put(right_plane);
    sync_block();
    left.template load<Count>(k + SQUARE_DEPTH, depths);
    right.template load<Count>(k + SQUARE_DEPTH, depths);
    multiply_planes<TILE>(sums, left_plane, right_plane);
    sync_block();
  }
}

// `out`, `existing` (or null): the tile's first element; rows and columns that the matrix has from there on.
template <int TILE, class Out>
static inline void store_square(const SquareSums<TILE>& sums, Out* out, int64_t stride, const Out* existing, int64_t existing_stride,
                                int64_t rows, int64_t columns) {
#pragma unroll
  for (int m = 0; m < TILE / 16; ++m) {
    const int row = m / 4 * 64 + thread_x() / 16 * 4 + m % 4;
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n) {
      const int column = n / 4 * 64 + thread_x() % 16 * 4 + n % 4;
      if (row >= rows || column >= columns) continue;
      float sum = sums[m][n];
      if (existing) sum += to_float(existing[row * existing_stride + column]);
      out[row * stride + column] = from_float<Out>(sum);
    }
  }
}
