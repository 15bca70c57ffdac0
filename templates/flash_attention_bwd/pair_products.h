// GPU vocabulary of the attention kernels' gradients on mma.sync: a warp's products of its pair's keys (or values) with a step's queries,
// and its sums over queries, dk or dv.
#pragma once
#include "device/attention/attention.h"
#include "device/tile/later.h"
#include "flash_attention_bwd/pair_shape.h"

// FEATURES: the most of the two tensors. OWN_SLICES: slices of 16 features of a warp's keys, or values, kept in registers.
template <class Shape, int FEATURES, int OWN_SLICES> struct PairProducts {
  using T = typename Shape::Element;
  using Scores = typename Shape::Scores;
  using Operands = typename Shape::Operands;
  static constexpr int M_TILES = Shape::M_TILES, N_TILES = Shape::N_TILES, HALVES = Shape::HALVES;
  typedef float Sums[M_TILES][FEATURES / 8][4];                       // [tile of 16 keys][8 features][fragment of C]
  typedef uint32_t Own[M_TILES][OWN_SLICES > 0 ? OWN_SLICES : 1][4];  // A: 16 keys by 16 features
  template <int COLUMNS> using OwnTile = Tile<T, Shape::BLOCK_N, COLUMNS>;
  template <int COLUMNS> using StepTile = Tile<T, Shape::BLOCK_M, COLUMNS>;

  static void load_own(Own& own, SharedPointer tile, int row) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int slice = 0; slice < OWN_SLICES; ++slice) OwnTile<FEATURES>{tile}.load_a(own[m][slice], row + 16 * m, 16 * slice);
  }

  // scores = own rows times the step's rows, transposed.
  template <int COLUMNS> static void multiply(Scores& s, const Own& own, SharedPointer own_tile, SharedPointer step_tile, int row) {
    constexpr int SLICES = COLUMNS / 16;
    uint32_t a[M_TILES][4], b[2][4];  // of a slice; of 16 queries and of the next ones
    const auto load_a = [&](int slice, int m) {
#pragma unroll
      for (int i = 0; slice < OWN_SLICES && i < 4; ++i) a[m][i] = own[m][slice][i];
      if (slice >= OWN_SLICES) OwnTile<COLUMNS>{own_tile}.load_a(a[m], row + 16 * m, 16 * slice);
    };
    const StepTile<COLUMNS> tile{step_tile};
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int i = 0; i < 4 * N_TILES; ++i) s[m][i / 4][i % 4] = 0;
      load_a(0, m);
    }
    tile.load_b(b[0], 0, 0);
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int n = 0; n < HALVES; ++n) {
        const int at = slice * HALVES + n, next = at + 1;
        if (next < SLICES * HALVES) tile.load_b(b[next % 2], next % HALVES * 16, next / HALVES * 16);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_16x8x16<T>(s[m][2 * n], a[m], b[at % 2][0], b[at % 2][1]);
          mma_16x8x16<T>(s[m][2 * n + 1], a[m], b[at % 2][2], b[at % 2][3]);
          if (n == HALVES - 1 && slice + 1 < SLICES) load_a(slice + 1, m);
        }
      }
  }

  static void pack(Operands& a, const Scores& s) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int n = 0; n < HALVES; ++n) {
        const Pack<uint32_t, 4> words = pack_operand<T>(s, m, n);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][n][i] = later(words.at[i]);  // now: s is not kept
      }
  }

  static void clear(Sums& sums) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int f = 0; f < FEATURES / 8; ++f)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][f][i] = 0;
  }

  // sums += a times the step's rows.
  template <int COLUMNS> static void add_products(Sums& sums, const Operands& a, SharedPointer step_tile) {
    constexpr int TILES = COLUMNS / 16;
    uint32_t b[2][4];
    const StepTile<COLUMNS> tile{step_tile};
    tile.load_b_transposed(b[0], 0, 0);
#pragma unroll
    for (int n = 0; n < HALVES; ++n)
#pragma unroll
      for (int f = 0; f < TILES; ++f) {
        const int at = n * TILES + f, next = at + 1;
        if (next < HALVES * TILES) tile.load_b_transposed(b[next % 2], next / TILES * 16, next % TILES * 16);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_16x8x16<T>(sums[m][2 * f], a[m][n], b[at % 2][0], b[at % 2][1]);
          mma_16x8x16<T>(sums[m][2 * f + 1], a[m][n], b[at % 2][2], b[at % 2][3]);
        }
      }
  }

  static bool finite(const Sums& sums) {
    float zero = 0;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int f = 0; f < FEATURES / 8; ++f)
#pragma unroll
        for (int i = 0; i < 4; ++i) zero += sums[m][f][i] * 0;
    return zero == 0;
  }

  // The warp's sums times a factor, through its own rows of a tile in `memory`, to the keys of dk or dv, of FILLED features each.
  template <int COLUMNS, int FILLED, class Plan>
  static void store(const Sums& sums, float factor, char* memory, int first_row, const Heads<T>& out, const Plan& plan) {
    constexpr int PITCH = OwnTile<COLUMNS>::PITCH, CHUNKS = FILLED / 8;
    const int row = static_cast<int>(later(first_row));
    T* const tile = reinterpret_cast<T*>(memory) + row * PITCH;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int f = 0; f < COLUMNS / 8; ++f)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<uint32_t*>(tile + (16 * m + 8 * h + lane() / 4) * PITCH + 8 * f + lane() % 4 * 2) =
              pack_pair<T>(sums[m][f][2 * h] * factor, sums[m][f][2 * h + 1] * factor);
    sync_warp();
    T* const to = out.row(plan.sequence.batch, plan.sequence.first_key + plan.first_key, plan.kv_head);
#pragma unroll 1
    for (int i = lane(); i < Shape::PAIR_KEYS * CHUNKS; i += WARP)
      if (row + i / CHUNKS < plan.keys)
        store_pack(to + (row + i / CHUNKS) * out.token_stride + i % CHUNKS * 8, load_pack<8>(tile + i / CHUNKS * PITCH + i % CHUNKS * 8));
  }
};
