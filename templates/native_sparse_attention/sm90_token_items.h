// Hopper vocabulary: what a block of threads does one after the other: TOKENS tokens of a row of the batch and up to ROW_HEADS query heads of a kv head. Part
// of a template, as sm90_tile_ring.h.
#pragma once
#include "native_sparse_attention/sm90_tile_ring.h"

struct TokenItem {
  int batch, kv_head, first_token;
  int part, first_head, heads;  // of the kv head's query heads
};

struct TokenItems {
  int batches, tokens, kv_heads, heads;  // heads: of a kv head

  int parts() const { return (heads + ROW_HEADS - 1) / ROW_HEADS; }
  int across() const { return (tokens + TOKENS - 1) / TOKENS; }
  int count() const { return across() * kv_heads * parts() * batches; }
  // Of this block of threads, which has every grid_x()-th.
  int own_count() const { return (count() - block_x() + grid_x() - 1) / grid_x(); }
  // The last tokens first: they see most.
  TokenItem own(int turn) const {
    const int i = block_x() + turn * grid_x();
    const int rows = kv_heads * parts(), row = i / across() % rows, part = row % parts(), kv_head = row / parts(), left = heads - part * ROW_HEADS;
    return {i / across() / rows, kv_head, (across() - 1 - i % across()) * TOKENS, part, kv_head * heads + part * ROW_HEADS, left < ROW_HEADS ? left : ROW_HEADS};
  }
};

// By the last warpgroup: three of its warps load bits of the item to come, the first one copies tiles of the item in turn. load(a token's bits, item, token);
// copy(item, the bits of its tokens). all_bits: of two items, in shared memory.
template <class Load, class Copy> static inline void serve_items(const TokenItems& items, uint32_t* all_bits, int words, const Load& load, const Copy& copy) {
  const int loader = uniform(warp()) - 4 * GROUPS - 1;
#pragma unroll 1
  for (int i = 0; i < items.own_count(); ++i) {
    const TokenItem item = items.own(i);
    uint32_t* const bits = all_bits + i % 2 * TOKENS * words;
#pragma unroll 1
    for (int of = loader; loader >= 0 && of < TOKENS; of += 3) load(bits + of * words, item, item.first_token + of);
    sync_some(1, WARPGROUP);  // the bits are there, and those of the item before are not needed any more
    if (loader < 0) copy(item, bits);
  }
}
