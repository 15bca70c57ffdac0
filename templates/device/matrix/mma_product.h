// GPU vocabulary: a tile of a product on mma.sync, by a block. Tiles of both factors come by asynchronous copies, STAGES - 1 steps ahead.
#pragma once
#include "device/matrix/factor.h"
#include "device/tile/tile_transposed.h"

// BLOCK_M x BLOCK_N of left times right, DEPTH products a step. ALONG: neighbours of a factor lie along the depth in memory, not across it.
// WARPS_M x WARPS_N warps.
template <class T, int BLOCK_M, int BLOCK_N, int DEPTH, int STAGES, int WARPS_M, int WARPS_N, bool LEFT_ALONG, bool RIGHT_ALONG>
struct BlockProduct {
  static constexpr int THREADS = WARPS_M * WARPS_N * WARP;
  static constexpr int M_TILES = BLOCK_M / WARPS_M / 16, N_TILES = BLOCK_N / WARPS_N / 8;
  using LeftTile = Tile<T, LEFT_ALONG ? BLOCK_M : DEPTH, LEFT_ALONG ? DEPTH : BLOCK_M>;
  using RightTile = Tile<T, RIGHT_ALONG ? BLOCK_N : DEPTH, RIGHT_ALONG ? DEPTH : BLOCK_N>;
  static constexpr int STAGE = LeftTile::BYTES + RightTile::BYTES;

  int row = warp() / WARPS_N * (M_TILES * 16), column = warp() % WARPS_N * (N_TILES * 8);  // this warp's first
  float sums[M_TILES][N_TILES][4] = {};

  // Starts copying a tile: `matrix` is the first element of its first row; rows and columns that the matrix has from there on, else zeros.
  template <int ROWS, int COLUMNS>
  static void copy_tile(const Tile<T, ROWS, COLUMNS>& to, const T* matrix, int64_t stride, int rows, int64_t columns) {
    constexpr int CHUNKS = COLUMNS / 8;
#pragma unroll
    for (int first = 0; first < ROWS * CHUNKS; first += THREADS) {
      const int i = first + thread_x(), row = i / CHUNKS, column = i % CHUNKS * 8;
      if (ROWS * CHUNKS % THREADS != 0 && i >= ROWS * CHUNKS) break;
      copy_async_16(to.at(row, column), matrix + row * stride + column, row < rows && column < columns);
    }
  }
  template <bool ALONG, int BLOCK, class Place> static void copy_step(const Place& to, const Factor<T>& factor, int64_t k, int64_t left) {
    if constexpr (ALONG)
      copy_tile(to, factor.first + k, factor.stride, static_cast<int>(factor.across < BLOCK ? factor.across : BLOCK), left);
    else
      copy_tile(to, factor.first + k * factor.stride, factor.stride, static_cast<int>(left < DEPTH ? left : DEPTH), factor.across);
  }

  void multiply(const LeftTile& left, const RightTile& right) {
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      uint32_t a[M_TILES][4];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        if constexpr (LEFT_ALONG)
          left.load_a(a[m], row + 16 * m, k);
        else
          load_a_transposed(a[m], left, k, row + 16 * m);
      }
#pragma unroll
      for (int n = 0; n < N_TILES; n += 2) {
        uint32_t b[4];
        if constexpr (RIGHT_ALONG)
          right.load_b(b, column + 8 * n, k);
        else
          right.load_b_transposed(b, k, column + 8 * n);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_16x8x16<T>(sums[m][n], a[m], b[0], b[1]);
          mma_16x8x16<T>(sums[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  // sums += left right, over `depths`.
  void run(const Factor<T>& left, const Factor<T>& right, int64_t depths) {
    const SharedPointer memory = shared_pointer(dynamic_shared());
    const int steps = static_cast<int>((depths + DEPTH - 1) / DEPTH);
    const auto start_copy = [&](int step) {
      if (step < steps) {
        const SharedPointer stage = memory + step % STAGES * STAGE;
        const int64_t k = static_cast<int64_t>(step) * DEPTH;
        copy_step<LEFT_ALONG, BLOCK_M>(LeftTile{stage}, left, k, depths - k);
        copy_step<RIGHT_ALONG, BLOCK_N>(RightTile{stage + LeftTile::BYTES}, right, k, depths - k);
      }
      copy_async_commit();
    };
    for (int step = 0; step < STAGES - 1; ++step) start_copy(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      copy_async_wait<STAGES - 2>();
      sync_block();  // the step is there for all, and all are done with the one whose place is copied to next
      start_copy(step + STAGES - 1);
      const SharedPointer stage = memory + step % STAGES * STAGE;
      multiply(LeftTile{stage}, RightTile{stage + LeftTile::BYTES});
    }
  }

  // `out`, `existing`: the block's first element; rows and columns that the matrix has from there on. Two elements at once: columns are
  // even.
  template <bool ADDS, class Out>
  void store(Out* out, int64_t stride, const Out* existing, int64_t existing_stride, int64_t rows, int64_t columns) const {
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
          store_pack(out + r * stride + c, Pack<Out, 2>{{from_float<Out>(low), from_float<Out>(high)}});
        }
      }
  }
};
