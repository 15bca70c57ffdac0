// GPU vocabulary of the chunked recurrence on matrix instructions of a wave: weights of a chunk's pairs of tokens, in shared memory as operands.
#pragma once
#include "recurrent/chunk_wave_products.h"

// Blocks of 16 x 16 of the lower triangle, one after another.
constexpr int PAIR_BLOCKS = TILES * (TILES + 1) / 2;
static_assert(TILES == 2, "block_row() knows three blocks");
static inline int block_row(int i) { return i < 1 ? 0 : 1; }
static inline int block_column(int i) { return i - block_row(i); }

// Of tokens t by tokens s <= t, elements [t][s]: row t of a block of 16 columns is as many times too large as its unit says.
struct Pairs {
  char* tile;
  float (*inverses)[CHUNK];  // of units: [block column][t]

  static constexpr int BYTES = CHUNK * TOKEN_PITCH + (NARROW ? 4 * TILES * CHUNK : 0);
  explicit Pairs(char* memory) : tile(memory), inverses(reinterpret_cast<float (*)[CHUNK]>(memory + CHUNK * TOKEN_PITCH)) {}

  // A block's weights, [16 s][16 t]: a lane has those of one t.
  void put(int block, const Sums& weights) const { put(block_row(block), block_column(block), weights); }
  void put(int block_row, int block_column, const Sums& weights) const {
    const int t = 16 * block_row + matrix_column();
    Unit unit;
    if constexpr (NARROW) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < SUMS; ++i) largest = larger_size(largest, weights.at[i]);
      unit = Unit(largest_of_column(largest));
      inverses[block_column][t] = unit.inverse;
    }
    Element* row = reinterpret_cast<Element*>(tile + t * TOKEN_PITCH) + 16 * block_column;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) row[matrix_row(i)] = from_float<Element>(weights.at[i] * unit.of);
  }

  // sums [16 columns][16 tokens] += written^T weights^T; `written` is [token][column] in units of 1 / unit. BACK: weights are of tokens s >= t.
  template <bool BACK = false> void add(Sums (&sums)[TILES], const Operand (&written)[TILES], float unit) const {
#pragma unroll
    for (int c = 0; c < TILES; ++c) {
      part();
#pragma unroll
      for (int r = BACK ? 0 : c; r < (BACK ? c + 1 : TILES); ++r) add_block(sums[r], written[c], r, c, unit);
    }
  }
  // The same of one block: tokens of tile r, what those of tile c wrote.
  void add_block(Sums& sums, const Operand& written, int r, int c, float unit) const {
    const Operand b = load_operand(shared_pointer(tile) + 16 * r * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
    if constexpr (NARROW) {
      Sums own = {};
      multiply<Element>(own, written, b);
      const float inverse = inverses[c][16 * r + matrix_column()] * unit;
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sums.at[i] += own.at[i] * inverse;
    } else {
      multiply<Element>(sums, written, b);
    }
    hold(sums);
  }
};

// Dot products of the rows of two tiles, of a block: [16 rows of `right`][16 rows of `left`].
static inline Sums multiply_block(SharedPointer left, SharedPointer right, int block_row, int block_column) {
  Sums dots = {};
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    if (k % 2 == 0) part();
    multiply<Element>(dots, load_operand(right + 16 * block_column * KEY_PITCH + 32 * k, KEY_PITCH),
                      load_operand(left + 16 * block_row * KEY_PITCH + 32 * k, KEY_PITCH));
  }
  return dots;
}
static inline Sums multiply_block(SharedPointer left, SharedPointer right, int block) {
  return multiply_block(left, right, block_row(block), block_column(block));
}
