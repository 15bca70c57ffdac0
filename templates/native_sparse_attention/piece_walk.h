// GPU vocabulary: keys that tokens of a block of threads see between them, in pieces of up to 16 that lie in one block of tokens, four
// pieces a chunk; their rows on the way to shared memory.
#pragma once
#include "device/tile/tile.h"
#include "native_sparse_attention/selected_blocks.h"

constexpr int PIECE = 16, PIECES = 4, CHUNK = PIECE * PIECES;

struct Piece {
  int first, count;  // 0: none, and no piece after it
};

// Keys [at, end) of the blocks that `bits` has (null: of all), `size` keys a block.
struct PieceWalk {
  const uint32_t* bits;
  int size, at, end, block_end;

  PieceWalk() = default;
  PieceWalk(const uint32_t* some, int64_t block_size, int first, int last)
      : bits(some), size(static_cast<int>(block_size)), at(first), end(last), block_end(some ? first : last) {}

  Piece next() {
    if (at >= block_end && bits) {
      const KeyRange run = SelectedBlocks{bits, size}.next(at, end);
      at = static_cast<int>(run.first);
      block_end = static_cast<int>(run.end);
    }
    const int left = (block_end < end ? block_end : end) - at, in_block = size - at % size;
    int count = left < PIECE ? left : PIECE;
    if (bits && in_block < count) count = in_block;
    if (count < 0) count = 0;
    const Piece piece{at, count};
    at += count;
    return piece;
  }
  void next_chunk(Piece* to) {
#pragma unroll 1
    for (int i = 0; i < PIECES; ++i) to[i] = next();
  }
};

// Rows of keys and values, in this order, from global memory.
template <class T>
struct KeyRows {
  const T *keys, *values;
  int64_t key_stride, value_stride;
};

// A stage: CHUNK rows of keys, then of values; what is past a piece becomes zeros.
template <class T, int D, int DV, int THREADS>
struct ChunkStage {
  using KeyTile = Tile<T, CHUNK, D>;
  using ValueTile = Tile<T, CHUNK, DV>;
  static constexpr int BYTES = KeyTile::BYTES + ValueTile::BYTES;
  SharedPointer base;

  KeyTile keys() const { return {base}; }
  ValueTile values() const { return {base + KeyTile::BYTES}; }

  // One piece, by a warp.
  template <int COLUMNS>
  static void copy_piece(const Tile<T, CHUNK, COLUMNS>& to, int first_row, const T* from, int64_t stride, const Piece& piece) {
    constexpr int ACROSS = COLUMNS / 8;  // copies a row
    if constexpr (WARP % ACROSS == 0) {  // a lane stays in its column
      constexpr int STEP = WARP / ACROSS;
      const int row = lane() / ACROSS, column = lane() % ACROSS * 8;
      const SharedPointer at = to.at(first_row + row, column);
      const T* next = from + (piece.first + row) * stride + column;
#pragma unroll
      for (int i = 0; i < PIECE / STEP; ++i) {
        copy_async_16(at + i * STEP * Tile<T, CHUNK, COLUMNS>::PITCH * 2, next, i * STEP + row < piece.count);
        next += STEP * stride;
      }
    } else {
#pragma unroll 1
      for (int i = lane(); i < PIECE * ACROSS; i += WARP) {
        const int row = i / ACROSS, column = i % ACROSS * 8;
        copy_async_16(to.at(first_row + row, column), from + (piece.first + row) * stride + column, row < piece.count);
      }
    }
  }
  // By all warps of a block, of THREADS threads.
  void copy(bool values_too, const KeyRows<T>& rows, const Piece* pieces) const {
#pragma unroll 1
    for (int job = warp(); job < (values_too ? 2 : 1) * PIECES; job += THREADS / WARP) {
      const int p = job % PIECES;
      if (job < PIECES)
        copy_piece<D>(keys(), PIECE * p, rows.keys, rows.key_stride, pieces[p]);
      else
        copy_piece<DV>(values(), PIECE * p, rows.values, rows.value_stride, pieces[p]);
    }
  }
};
