// GPU vocabulary: operand A of mma_16x8x16 from a tile that holds its transpose.
#pragma once
#include "device/tile/tile.h"

// The tile's rows [row, row + 16) are summed over; its columns [column, column + 16) are the rows of A.
template <class T, int ROWS, int COLUMNS>
static inline void load_a_transposed(uint32_t (&a)[4], const Tile<T, ROWS, COLUMNS>& tile, int row, int column) {
  load_matrices_transposed(a, tile.at(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2 * 8) + (row * tile.PITCH + column) * 2);
}
