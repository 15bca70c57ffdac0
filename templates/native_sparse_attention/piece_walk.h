// GPU vocabulary: keys that tokens of a block of threads see between them, in pieces of up to 16 that lie in one block of tokens, four
// pieces a chunk; their rows on the way to shared memory.
#pragma once
#include "device/tile/tile.h"
#include "native_sparse_attention/select_blocks_gpu.h"
$if by_waves
#include "native_sparse_attention/wave_values.h"
$end

constexpr int PIECE = 16, CHUNK = PIECE * PIECES;

struct Piece {
  int first, count;  // 0: none, and no piece after it
  int block;
};

static inline bool has_block(const uint32_t* bits, int block) { return (bits[static_cast<uint32_t>(block) / 32] >> block % 32 & 1) != 0; }

// Keys [at, end) of the blocks that `bits` has (null: of all), `size` keys a block.
struct PieceWalk {
  const uint32_t* bits;
  int size, at, end, block_end, block, blocks;

  PieceWalk() = default;
  PieceWalk(const uint32_t* some, int block_size, int first, int last)
      : bits(some),
        size(block_size),
        at(first),
        end(last),
        block_end(some ? first : last),
        block(-1),
        blocks(some ? (last + block_size - 1) / block_size : 0) {}

  // The first block from `from` on that is on.
  int next_block(int from) const {
    while (from < blocks) {
      const uint32_t rest = bits[static_cast<uint32_t>(from) / 32] >> from % 32;
      if (rest != 0) return from + ones_in((rest & -rest) - 1);
      from = (from | 31) + 1;
    }
    return blocks;
  }
  Piece next() {
    if (at >= block_end && block < blocks) {
      block = next_block(block + 1);
      at = block * size;
      block_end = block < blocks ? at + size : at;
    }
    const int limit = block_end < end ? block_end : end;
    const int count = limit - at < PIECE ? limit - at : PIECE;
    const Piece piece{at, count > 0 ? count : 0, block};
    at += piece.count;
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
$if by_waves
  using ValueTile = TransposedTile<T, CHUNK, DV>;
$else
  using ValueTile = Tile<T, CHUNK, DV>;
$end
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
        const bool wanted = i * STEP + row < piece.count;  // else a stride may be anything
        copy_async_16(at + i * STEP * Tile<T, CHUNK, COLUMNS>::PITCH * 2, wanted ? next : from, wanted);
        next += STEP * stride;
      }
    } else {
#pragma unroll 1
      for (int i = lane(); i < PIECE * ACROSS; i += WARP) {
        const int row = i / ACROSS, column = i % ACROSS * 8;
        const bool wanted = row < piece.count;
        copy_async_16(to.at(first_row + row, column), from + (wanted ? (piece.first + row) * stride + column : 0), wanted);
      }
    }
  }
$if by_waves
  template <int COLUMNS>
  static void copy_piece(const TransposedTile<T, CHUNK, COLUMNS>& to, int first_row, const T* from, int64_t stride, const Piece& piece) {
    to.copy(first_row, from + (piece.count > 0 ? piece.first * stride : 0), stride, piece.count);
  }
$end
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
