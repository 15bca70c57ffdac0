// GPU vocabulary: a tile of a product on matrix instructions of waves (MFMA, WMMA), by a block; what device/matrix/mma_product.h is for mma.sync.
//
// The product is made transposed, so that a lane's numbers are neighbours in a row of it. Tiles of both factors lie in shared memory with
// neighbours along the depth; one that does not in memory is turned on the way there.
#pragma once
#include "device/matrix/factor.h"
#include "device/matrix/wave_rows.h"

// BLOCK_M x BLOCK_N of left times right, DEPTH products a step. ALONG: neighbours of a factor lie along the depth in memory, not across it.
// WAVES_M x WAVES_N waves.
template <class T, int BLOCK_M, int BLOCK_N, int DEPTH, int WAVES_M, int WAVES_N, bool LEFT_ALONG, bool RIGHT_ALONG> struct BlockProduct {
  static constexpr int THREADS = WAVES_M * WAVES_N * WAVE;
  static constexpr int M_TILES = BLOCK_M / WAVES_M / 16, N_TILES = BLOCK_N / WAVES_N / 16;
  static constexpr int PITCH = TRANSPOSED_PITCH<DEPTH>;  // bytes from row to row of a tile
  static constexpr int RIGHT = BLOCK_M * PITCH, STAGE = RIGHT + BLOCK_N * PITCH;

  int row = wave() / WAVES_N * (M_TILES * 16), column = wave() % WAVES_N * (N_TILES * 16);  // this wave's first
  Sums sums[M_TILES][N_TILES] = {};                                                         // [column][row] of the product

  // BLOCK rows, or columns, of a factor from depth k on, `left` depths; else zeros.
  template <bool ALONG, int BLOCK> static void copy_step(SharedPointer to, const Factor<T>& factor, int64_t k, int64_t left) {
    if constexpr (!ALONG) {
      copy_transposed<DEPTH, BLOCK, THREADS>(to, factor.first + k * factor.stride, factor.stride, left, factor.across);
    } else {
#pragma unroll 1
      for (int i = thread_x(); i < BLOCK * (DEPTH / 8); i += THREADS) {
        const int row = i / (DEPTH / 8), depth = i % (DEPTH / 8) * 8;
        copy_async_16(to + row * PITCH + depth * 2, factor.first + row * factor.stride + k + depth, row < factor.across && depth < left);
      }
    }
  }

  void multiply(SharedPointer stage) {
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      Operand of_rows[M_TILES];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) of_rows[m] = load_operand(stage + (row + 16 * m) * PITCH + 2 * k, PITCH);
#pragma unroll
      for (int n = 0; n < N_TILES; ++n) {
        const Operand of_columns = load_operand(stage + RIGHT + (column + 16 * n) * PITCH + 2 * k, PITCH);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) ::multiply<T>(sums[m][n], of_columns, of_rows[m]);
      }
    }
  }

  // sums += left right, over `depths`. Two steps are in shared memory: one is copied while the other is read.
  void run(const Factor<T>& left, const Factor<T>& right, int64_t depths) {
    const SharedPointer memory = shared_pointer(dynamic_shared());
    const auto copy = [&](int64_t k) {
      const SharedPointer stage = memory + (k / DEPTH % 2 == 0 ? 0 : STAGE);
      copy_step<LEFT_ALONG, BLOCK_M>(stage, left, k, depths - k);
      copy_step<RIGHT_ALONG, BLOCK_N>(stage + RIGHT, right, k, depths - k);
    };
    copy(0);
#pragma unroll 1
    for (int64_t k = 0; k < depths; k += DEPTH) {
      copy_async_commit();
      copy_async_wait<0>();
      sync_block();  // the step is there for all, and all are done with the one whose place is copied to next
      if (k + DEPTH < depths) copy(k + DEPTH);
      multiply(memory + (k / DEPTH % 2 == 0 ? 0 : STAGE));
    }
  }

  // `out`, `existing`: the block's first element; rows and columns that the matrix has from there on.
  template <bool ADDS, class Out>
  void store(Out* out, int64_t stride, const Out* existing, int64_t existing_stride, int64_t rows, int64_t columns) const {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      const int r = row + 16 * m + matrix_column();
      if (r >= rows) continue;
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
          const int c = column + 16 * n + matrix_row(i);
          if (c >= columns) continue;
          float sum = sums[m][n].at[i];
          if constexpr (ADDS) sum += to_float(existing[r * existing_stride + c]);
          out[r * stride + c] = from_float<Out>(sum);
        }
    }
  }
};
