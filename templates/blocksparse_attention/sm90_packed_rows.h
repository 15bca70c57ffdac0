// Hopper vocabulary of blocksparse_attention's gradients of packed sequences: what the mask leaves of a sequence, and whose rows lie in the workspace.
#pragma once
#include "blocksparse_attention/packed_blocks.h"

// The sequences of a call, and the mask's blocks.
struct MaskedSequences : Sequences {
  const View& mask;
  int64_t block_q, block_k;

  Sequence cut(const Sequence& sequence) const { return cut_to_mask(sequence, mask, block_q, block_k); }
};

// The sequence for which the workspace has the tile-th ROWS rows of a head, and the first of them in that sequence: it may be past the last one. As
// RowSpace has them, each sequence begins in a tile of its own, and later ones in later tiles.
template <int ROWS> static inline Sequence sequence_of_rows(const Sequences& sequences, int64_t tile, int64_t& first) {
  const auto first_tile = [&](int64_t n) { return sequences.cum_queries[n] / ROWS + n; };
  int64_t low = 0, high = sequences.count;  // it is one of these
#pragma unroll 1
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (first_tile(middle) <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  first = (tile - first_tile(low)) * ROWS;
  return sequences[low];
}

// Tokens whose rows lie together in the workspace, from the first row of a tile on.
struct alignas(8) TileTokens {
  int32_t first, count;

  template <int ROWS> static TileTokens of(const Sequence& sequence, int64_t first_row) {
    const int64_t left = sequence.queries - first_row;
    return {static_cast<int32_t>(sequence.first_query + first_row), static_cast<int32_t>(left < 0 ? 0 : left < ROWS ? left : ROWS)};
  }
};
