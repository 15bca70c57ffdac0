// GPU vocabulary of ssd_bwd on matrix instructions of a wave: what flows between a chunk's tokens, as it lies in memory.
#pragma once

// Sums of each block of pairs: what tokens read, and that times the steps to them from its writers; what tokens hand on, without their steps. Of
// tokens: what they read of themselves, likewise, and the product of x and out's gradient.
struct PairSums {
  float read[PAIR_BLOCKS][16], aged[PAIR_BLOCKS][16], given[PAIR_BLOCKS][16], own[CHUNK], skip[CHUNK];

  // Token t's of sums by readers, and of those by writers.
  static float of_reader(const float (&x)[PAIR_BLOCKS][16], int t) { return t < 16 ? x[0][t] : x[1][t - 16] + x[2][t - 16]; }
  static float of_writer(const float (&x)[PAIR_BLOCKS][16], int t) { return t < 16 ? x[0][t] + x[1][t] : x[2][t - 16]; }
};
constexpr int PAIR_ROWS = (static_cast<int>(sizeof(PairSums) / 4) + CHUNK - 1) / CHUNK;
