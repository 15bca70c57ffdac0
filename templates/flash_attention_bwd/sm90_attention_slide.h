// Hopper vocabulary of the attention kernels' gradients: turns that begin near the first query that sees a key, and not at a multiple of their rows.
#pragma once
#include "flash_attention_bwd/sm90_attention_keys.h"

// A block's turns move so that the last one ends with the last query that sees a key: mostly fewer of them where that is the last of all, as with
// a causal mask. The block's sequence then starts where they do, a multiple of 8 queries, as sums of dq lie whose rows have one box of features.
template <class Block> static inline void slide_turns(Block& block, const Visibility& visibility) {
  constexpr int ROWS = Block::ROW_COUNT;
  Sequence& sequence = block.sequence;
  const int64_t end_key = block.first_key + Block::COUNT;
  const int64_t last_key = (end_key < sequence.keys ? end_key : sequence.keys) - 1;
  const int first = seeing_queries(visibility, block.first_key, sequence.offset, sequence.queries).first;
  const int end = (seeing_queries(visibility, last_key, sequence.offset, sequence.queries).end + 7) / 8 * 8;
  const int by = end - (end - first + ROWS - 1) / ROWS * ROWS;
  if (block.steps() == 0 || by <= 0) return;
  sequence.first_query += by, sequence.queries -= by, sequence.offset += by, block.first_row += by;
  block.find_steps(visibility, static_cast<int>(sequence.keys), static_cast<int>(sequence.queries));
}
