// Hopper vocabulary of blocksparse_attention's gradients: which queries see a key in chunks of positions. As BlockVisibility's, but of 32 bits: a quotient of
// 64 takes registers that warpgroups do not have.
#pragma once
#include "flash_attention_bwd/attention_backward.h"

// Positions and keys are below 2^30, so that a chunk so long is all.
static inline int chunk_of(int64_t chunk_size) { return static_cast<int>(chunk_size < 1 << 30 ? chunk_size : 1 << 30); }

struct ChunkVisibility {
  bool causal;
  int64_t window_left, window_right;
  int chunk;  // positions

  operator Visibility() const { return {causal, window_left, window_right}; }
};

// Those whose chunk the key is in, from its place on. Ranges still move forwards with the keys, and those of keys that follow one another leave no query
// between them out.
static inline RowRange seeing_queries(const ChunkVisibility& rule, int64_t j, int64_t given_offset, int64_t queries) {
  const RowRange seen = seeing_queries(static_cast<Visibility>(rule), j, given_offset, queries);
  const int key = static_cast<int>(j), offset = static_cast<int>(given_offset), from = key - offset;
  const int to = key - static_cast<int>(static_cast<uint32_t>(key) % static_cast<uint32_t>(rule.chunk)) + rule.chunk - offset;
  const int first = from > seen.first ? (from < seen.end ? from : seen.end) : seen.first, end = to < seen.end ? to : seen.end;
  return {first, end > first ? end : first};
}
