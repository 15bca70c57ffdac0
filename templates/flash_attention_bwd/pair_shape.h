// GPU vocabulary of the attention kernels' gradients on mma.sync: a block's warps, which share its keys in pairs, and what a lane of them
// keeps.
#pragma once
#include "device/tile/tile.h"

// Each pair has KEY_TILES tiles of 16 keys, which both its warps multiply; a step is of QUERIES queries.
template <class T, int PAIR_COUNT, int KEY_TILES, int QUERIES> struct PairShape {
  using Element = T;
  static constexpr int PAIRS = PAIR_COUNT, WARPS = 2 * PAIRS, THREADS = WARPS * WARP;
  static constexpr int M_TILES = KEY_TILES, PAIR_KEYS = 16 * M_TILES, BLOCK_N = PAIRS * PAIR_KEYS;
  static constexpr int BLOCK_M = QUERIES, N_TILES = BLOCK_M / 8, HALVES = N_TILES / 2;  // tiles of 8, of 16 queries

  // [tile of 16 keys][8 queries][fragment of C]: element (m, n, 2 h + i) of a lane is of key 16 m + 8 h + lane / 4 of the pair and query
  // 8 n + lane % 4 * 2 + i of the step.
  typedef float Scores[M_TILES][N_TILES][4];
  typedef uint32_t Operands[M_TILES][HALVES][4];  // A: 16 keys by 16 queries
  using GradientTile = Tile<T, BLOCK_N, BLOCK_M>;  // dS of all pairs
};

// Operand A of type T: of tile m of keys, half n of the queries.
template <class T, class Scores> static inline Pack<uint32_t, 4> pack_operand(const Scores& s, int m, int n) {
  Pack<uint32_t, 4> words;
#pragma unroll
  for (int i = 0; i < 4; ++i) words.at[i] = pack_pair<T>(s[m][2 * n + i / 2][i % 2 * 2], s[m][2 * n + i / 2][i % 2 * 2 + 1]);
  return words;
}
