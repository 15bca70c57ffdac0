// GPU vocabulary: tiles of 16-bit elements in shared memory, and their fragments for mma_16x8x16.
#pragma once
#include "device/gpu.h"

// ROWS x COLUMNS elements, COLUMNS a multiple of 16. A row is followed by 16 bytes of nothing, so that eight rows at one column lie in
// different banks.
template <class T, int ROWS, int COLUMNS> struct Tile {
  static constexpr int PITCH = COLUMNS + 8, BYTES = ROWS * PITCH * 2;
  SharedPointer base;

  SharedPointer at(int row, int column) const { return base + (row * PITCH + column) * 2; }

  // Operand A: rows [row, row + 16), elements [column, column + 16).
  void load_a(uint32_t (&a)[4], int row, int column) const { load_matrices(a, at(lane() % 16, lane() / 16 * 8) + (row * PITCH + column) * 2); }
  // Operand B of a product with the transpose of this tile: its rows [row, row + 16) are columns of B. b[0], b[1]: the first eight.
  void load_b(uint32_t (&b)[4], int row, int column) const {
    load_matrices(b, at(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2 * 8) + (row * PITCH + column) * 2);
  }
  // Operand B of a product with this tile: rows [row, row + 16) are summed over. b[0], b[1]: columns [column, column + 8).
  void load_b_transposed(uint32_t (&b)[4], int row, int column) const {
    load_matrices_transposed(b, at(lane() % 16, lane() / 16 * 8) + (row * PITCH + column) * 2);
  }
};

// Copies the rows of a matrix in global memory tile after tile, FILLED elements each, `stride` elements apart, aligned to 16 bytes; what is
// past the matrix, or right of FILLED elements, becomes zeros. FILLED % 8 == 0.
template <class T, int ROWS, int COLUMNS, int THREADS, int FILLED> struct TileReader {
  static constexpr int CHUNKS = COLUMNS / 8, STEP = THREADS / CHUNKS;
  static constexpr bool STAYS = THREADS % CHUNKS == 0 && ROWS % STEP == 0;  // a thread stays in its column
  const T* from;    // STAYS: of this thread's next chunk; else of the next tile
  int64_t stride;
  int left;         // rows of the matrix from there on

  TileReader(const T* matrix, int64_t row_stride, int rows) : from(matrix), stride(row_stride), left(rows) {
    if constexpr (STAYS) {
      const int row = thread_x() / CHUNKS, column = thread_x() % CHUNKS * 8;
      from += row * stride + column;
      left = FILLED == COLUMNS || column < FILLED ? rows - row : 0;
      stride *= STEP;
    }
  }

  // A tile is copied in PARTS, in order; the last one moves on to the next tile.
  static constexpr int PARTS = STAYS ? ROWS / STEP : 1;

  // Starts copying a part of the next tile.
  void copy_part_async(const Tile<T, ROWS, COLUMNS>& to, int part) {
    if constexpr (STAYS) {
      const SharedPointer at = to.at(thread_x() / CHUNKS, thread_x() % CHUNKS * 8);
      copy_async_16(at + part * STEP * Tile<T, ROWS, COLUMNS>::PITCH * 2, from, part * STEP < left);
      from = keep(from + stride);
    } else {
#pragma unroll 1
      for (int i = thread_x(); i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, column = i % CHUNKS * 8;
        copy_async_16(to.at(row, column), from + row * stride + column, row < left && column < FILLED);
      }
      from += ROWS * stride;
    }
    if (part == PARTS - 1) left -= ROWS;
  }

  // Starts copying the whole of it.
  void copy_async(const Tile<T, ROWS, COLUMNS>& to) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) copy_part_async(to, part);
  }
};
