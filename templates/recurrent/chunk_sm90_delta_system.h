// Hopper vocabulary of the chunked recurrence with the delta rule: a warpgroup inverts a chunk's matrix, which its warps have in registers, a warp 16 rows,
// as wgmma leaves sums. chunk_matrix.h has the formulas. Part of a template, which has defined KEYS and Element before. After chunk_matrix.h.
#pragma once
#include "device/tile/transpose.h"

// Shared memory: pieces of blocks for other warps, words of lanes one after another (those of each warp's block on the diagonal, transposed; of the block
// beside the second one, transposed; of two products of the third's), then each warp's block on the diagonal in f32.
constexpr int PIECES_BYTES = 3 * 16 * WARP, SECOND_BESIDE = 4, THIRD_PRODUCTS = 5, SHARED_PIECES = 7;
constexpr int DIAGONAL_PITCH = 20, DIAGONAL_BYTES = 16 * DIAGONAL_PITCH * 4, SYSTEM_BYTES = SHARED_PIECES * PIECES_BYTES + 4 * DIAGONAL_BYTES;

struct SystemInverse {
  char* const memory;
  const int own;  // which 16 rows of the four the warp has

  float* diagonal() const { return reinterpret_cast<float*>(memory + SHARED_PIECES * PIECES_BYTES + own * DIAGONAL_BYTES); }
  void put_pieces(int place, const BlockPieces& x) const {
#pragma unroll
    for (int piece = 0; piece < 3; ++piece)
      store_pack(reinterpret_cast<uint32_t*>(memory + place * PIECES_BYTES) + piece * 4 * WARP + 4 * lane(), Pack<uint32_t, 4>{x.at[piece][0], x.at[piece][1], x.at[piece][2], x.at[piece][3]});
  }
  BlockPieces pieces(int place) const {
    BlockPieces x;
#pragma unroll
    for (int piece = 0; piece < 3; ++piece) {
      const Pack<uint32_t, 4> words = load_pack<4>(reinterpret_cast<const uint32_t*>(memory + place * PIECES_BYTES) + piece * 4 * WARP + 4 * lane());
#pragma unroll
      for (int i = 0; i < 4; ++i) x.at[piece][i] = words.at[i];
    }
    return x;
  }
  static BlockPieces transposed(const BlockPieces& x) {
    BlockPieces y;
#pragma unroll
    for (int piece = 0; piece < 3; ++piece)
#pragma unroll
      for (int i = 0; i < 4; ++i) y.at[piece][i] = transpose_matrix(x.at[piece][i % 2 * 2 + i / 2]);
    return y;
  }
  // A block of 16 columns of the warp's rows.
  using Block = float[2][4];
  using Rows = float[CHUNK / 2];
  static void take_block(Block& block, const Rows& rows, int number) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c == number) {
#pragma unroll
        for (int i = 0; i < 8; ++i) block[i / 4][i % 4] = rows[8 * c + i];
      }
  }
  // With the opposite sign.
  static void set_block(Rows& rows, int number, const Block& block) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c == number) {
#pragma unroll
        for (int i = 0; i < 8; ++i) rows[8 * c + i] = -block[i / 4][i % 4];
      }
  }
  static void set_to_zero(Block& x) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i / 4][i % 4] = 0;
  }

  // The warp's block on the diagonal is inverted, a column a lane, into shared memory, its columns one after another.
  void invert_diagonal(const Rows& rows) const {
    float* tile = diagonal();
    float* to = tile + lane() % 4 * 2 * DIAGONAL_PITCH + lane() / 4;
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c == own) {
#pragma unroll
        for (int i = 0; i < 8; ++i) to[(i / 4 * 8 + i % 2) * DIAGONAL_PITCH + i % 4 / 2 * 8] = rows[8 * c + i];
      }
    sync_warp();
    const int column = lane() % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = i == column ? 1 : 0;
#pragma unroll
    for (int l = 0; l < 15; ++l) {
#pragma unroll
      for (int pack = (l + 1) / 4; pack < 4; ++pack) {
        const Pack<float, 4> below = load_pack<4>(tile + l * DIAGONAL_PITCH + 4 * pack);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (4 * pack + i > l) x[4 * pack + i] -= below.at[i] * x[l];
      }
    }
    sync_warp();
#pragma unroll
    for (int pack = 0; pack < 4; ++pack)
      if (lane() < 16) store_pack(tile + column * DIAGONAL_PITCH + 4 * pack, Pack<float, 4>{x[4 * pack], x[4 * pack + 1], x[4 * pack + 2], x[4 * pack + 3]});
    sync_warp();
  }
  // As pieces, its transpose.
  BlockPieces inverted_diagonal() const {
    BlockPieces x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pack<float, 2> two = load_pack<2>(diagonal() + (lane() / 4 + i % 2 * 8) * DIAGONAL_PITCH + lane() % 4 * 2 + i / 2 * 8);
      x.set(i, two.at[0], two.at[1]);
    }
    return x;
  }
  void load_diagonal(Rows& rows) const {
    const float* from = diagonal() + lane() % 4 * 2 * DIAGONAL_PITCH + lane() / 4;
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c == own) {
#pragma unroll
        for (int i = 0; i < 8; ++i) rows[8 * c + i] = from[(i / 4 * 8 + i % 2) * DIAGONAL_PITCH + i % 4 / 2 * 8];
      }
  }

  // rows: the system below its diagonal, and 0; then its inverse. beside(): once all warps have begun.
  template <class Beside> void invert(Rows& rows, Beside beside) const {
    invert_diagonal(rows);
    BlockPieces diagonal;  // of the inverse
    {
      const BlockPieces other_way = inverted_diagonal();
      put_pieces(own, other_way);
      diagonal = transposed(other_way);
    }
    fence_async();
    sync_block();  // blocks on the diagonal are there
    beside();
    Block beside_it, products[2];
    if (own % 2 == 1) {
      Block x;
      take_block(x, rows, own - 1);
      set_to_zero(beside_it);
      multiply_blocks(beside_it, pieces(own - 1), BlockPieces::of(x));
      set_to_zero(x);
      multiply_blocks(x, diagonal, BlockPieces::of(beside_it));
      if (own == 1) {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i / 4][i % 4] = -x[i / 4][i % 4];
        put_pieces(SECOND_BESIDE, transposed(BlockPieces::of(x)));
#pragma unroll
        for (int i = 0; i < 8; ++i) rows[i] = x[i / 4][i % 4];
      } else {
        set_block(rows, 2, x);
      }
    }
    if (own >= 2) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        Block x;
        take_block(x, rows, column);
        set_to_zero(products[column]);
        multiply_blocks(products[column], pieces(column), BlockPieces::of(x));
      }
    }
    sync_block();  // the second block's neighbour is there
    if (own >= 2) {
      Block x;
      take_block(x, rows, 1);
      multiply_blocks(products[0], pieces(SECOND_BESIDE), BlockPieces::of(x));
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const BlockPieces seen = BlockPieces::of(products[column]);
        if (own == 2) put_pieces(THIRD_PRODUCTS + column, seen);
        set_to_zero(products[column]);
        multiply_blocks(products[column], diagonal, seen);
      }
    }
    sync_block();  // the third's products are there
    if (own >= 2) {
      if (own == 3) {
        Block x;
        take_block(x, rows, 2);
        const BlockPieces left = BlockPieces::of(x);
#pragma unroll
        for (int column = 0; column < 2; ++column) multiply_blocks(products[column], left, pieces(THIRD_PRODUCTS + column));
      }
#pragma unroll
      for (int column = 0; column < 2; ++column) set_block(rows, column, products[column]);
    }
    load_diagonal(rows);
  }
};
