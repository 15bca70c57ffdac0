// GPU vocabulary of the attention kernels' gradients on mma.sync: dq, to whose sums in global memory all blocks of keys add.
#pragma once
#include "flash_attention_bwd/pair_shape.h"
#include "device/tile/sums.h"
#include "device/tile/tile_transposed.h"

// Sums of BLOCK_M rows of D16 features: tiles of 16 x 16 one after another, each in the order of add_to_sums().
template <class Shape, int D16> struct QuerySums {
  using T = typename Shape::Element;
  static constexpr int BLOCK_M = Shape::BLOCK_M, BLOCK_N = Shape::BLOCK_N, TILES = D16 / 16;
  static constexpr int Q_WARPS = BLOCK_M / 16 < 2 ? 1 : 2, D_WARPS = Shape::WARPS / Q_WARPS;  // warps along queries, along features
  static constexpr int Q_TILES = BLOCK_M / 16 / Q_WARPS, D_TILES = (TILES + D_WARPS - 1) / D_WARPS;
  static constexpr bool EVEN = TILES % D_WARPS == 0;  // warps have as many tiles
  typedef float Sums[Q_TILES][D_TILES][2][4];

  // Adds dS K of a step; by all warps, each a share of tiles.
  static void add(float* sums, const typename Shape::GradientTile& ds, const Tile<T, BLOCK_N, D16>& k) {
    const int this_warp = shuffle(warp(), 0);  // here and not earlier, and as the same of all lanes: what is made of it takes no registers
    const int q_warp = this_warp % Q_WARPS, d_warp = this_warp / Q_WARPS;
    Sums c;
#pragma unroll
    for (int m = 0; m < Q_TILES; ++m)
#pragma unroll
      for (int d = 0; d < D_TILES; ++d)
#pragma unroll
        for (int i = 0; i < 8; ++i) c[m][d][i / 4][i % 4] = 0;
    multiply(c, ds, k, q_warp, d_warp);
#pragma unroll
    for (int m = 0; m < Q_TILES; ++m)
#pragma unroll
      for (int d = 0; d < D_TILES; ++d) {
        if (!EVEN && d_warp + D_WARPS * d >= TILES) continue;
        float* const to = sums + ((q_warp * Q_TILES + m) * TILES + d_warp + D_WARPS * d) * 256;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float row[4] = {c[m][d][0][2 * h], c[m][d][0][2 * h + 1], c[m][d][1][2 * h], c[m][d][1][2 * h + 1]};
          add_to_sums(to + 128 * h, row);
        }
      }
  }
  static void multiply(Sums& c, const typename Shape::GradientTile& ds, const Tile<T, BLOCK_N, D16>& k, int q_warp, int d_warp) {
    uint32_t a[Q_TILES][4], b[D_TILES][4];
    const auto load_a = [&](int n, int m) { load_a_transposed(a[m], ds, 16 * n, 16 * (q_warp * Q_TILES + m)); };
    const auto load_b = [&](int n, int d) {
      if (EVEN || d_warp + D_WARPS * d < TILES) k.load_b_transposed(b[d], 16 * n, 16 * (d_warp + D_WARPS * d));
    };
#pragma unroll
    for (int m = 0; m < Q_TILES; ++m) load_a(0, m);
#pragma unroll
    for (int d = 0; d < D_TILES; ++d) load_b(0, d);
#pragma unroll
    for (int n = 0; n < BLOCK_N / 16; ++n)
#pragma unroll
      for (int d = 0; d < D_TILES; ++d) {
#pragma unroll
        for (int m = 0; m < Q_TILES; ++m) {
          mma_16x8x16<T>(c[m][d][0], a[m], b[d][0], b[d][1]);
          mma_16x8x16<T>(c[m][d][1], a[m], b[d][2], b[d][3]);
          if (d == D_TILES - 1 && n + 1 < BLOCK_N / 16) load_a(n + 1, m);
        }
        if (n + 1 < BLOCK_N / 16) load_b(n + 1, d);
      }
  }
};
