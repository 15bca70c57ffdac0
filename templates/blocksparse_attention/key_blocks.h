// Vocabulary of every backend: which keys a mask of blocks, and chunks, leave to a block of queries.
#pragma once
#include "device/attention/attention.h"

// One row of the mask [B|1, Hq|1, query blocks, key blocks]: what a block of queries of one head sees.
struct KeyBlocks {
  const bool* on;
  int64_t size;  // keys a block

  KeyBlocks(const View& mask, int64_t batch, int64_t head, int64_t query_block, int64_t block_k)
      : on(static_cast<const bool*>(mask.data) + row_offset(mask, batch, head, query_block)), size(block_k) {}

  // Of keys [first, end): the first run that blocks one after the other leave, as long as it goes. Empty: there is none.
  KeyRange next(int64_t first, int64_t end) const {
    int64_t block = first / size;
    while (block * size < end && !on[block]) ++block;
    const int64_t begin = block * size;
    if (begin >= end) return {end, end};
    while (block * size < end && on[block]) ++block;
    return {begin > first ? begin : first, block * size < end ? block * size : end};
  }
};

// What chunks of so many positions leave of the keys that a query sees: those of its own chunk, up to itself. 0: there are no chunks.
// Ranges still move forwards with the queries, empty ones too.
static inline KeyRange within_chunk(const KeyRange& keys, const Sequence& sequence, int64_t query, int64_t chunk) {
  if (chunk <= 0) return keys;
  constexpr int64_t FAR = int64_t{1} << 61;  // as in visible_keys()
  const int64_t position = query + (sequence.offset > FAR ? FAR : sequence.offset < -FAR ? -FAR : sequence.offset);
  const int64_t before = position < 0 ? 0 : position + 1, first = position < 0 ? 0 : position - position % chunk;
  KeyRange own{keys.first > first ? keys.first : first, keys.end < before ? keys.end : before};
  if (own.first > own.end) own.first = own.end;
  return own;
}

// All of a call's visibility but masks and segments, for the gradients: ranges of keys, and blocks in them.
struct BlockVisibility {
  bool causal;
  int64_t window_left, window_right, chunk;
  const View* blocks;
  int64_t block_q, block_k;

  operator Visibility() const { return {causal, window_left, window_right}; }
  bool has_block(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    return static_cast<const bool*>(blocks->data)[row_offset(*blocks, batch, head, query / block_q) + key / block_k];
  }
};

static inline KeyRange visible_keys(const BlockVisibility& rule, const Sequence& s, int64_t query) {
  return within_chunk(visible_keys(static_cast<Visibility>(rule), s, query), s, query, rule.chunk);
}
