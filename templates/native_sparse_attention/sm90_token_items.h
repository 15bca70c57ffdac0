// Hopper vocabulary: what a block of threads does one after the other: TOKENS tokens of a row of the batch and up to ROW_HEADS query heads of a kv head. Part
// of a template, as sm90_tile_ring.h.
#pragma once
$if packed
#include "native_sparse_attention/packed_tokens.h"
$end
#include "native_sparse_attention/sm90_tile_ring.h"

struct TokenItem {
  int ${packed ? '' : 'batch, '}kv_head, first_token;
  int part, first_head, heads;  // of the kv head's query heads
$if packed
  static constexpr int batch = 0;
  int sequence, start, length;  // its number, the row of its first token, and how many it has; first_token is a number in it
  bool of_none;                 // tokens of no sequence, which see nothing

  bool is_there() const { return first_token < length; }
$end
};

struct TokenItems {
  int batches, tokens, kv_heads, heads;  // heads: of a kv head
$if packed
  const int32_t* offsets;  // of sequences, each of which has items of its own
  int64_t sequences;
$end

  int parts() const { return (heads + ROW_HEADS - 1) / ROW_HEADS; }
  int across() const { return (tokens + TOKENS - 1) / TOKENS${packed ? ' + static_cast<int>(sequences)' : ''}; }
  int count() const { return across() * kv_heads * parts() * batches; }
  // Of this block of threads, which has every grid_x()-th.
  int own_count() const { return (count() - block_x() + grid_x() - 1) / grid_x(); }
  // The last tokens first: they see most.
  TokenItem own(int turn) const {
    const int i = block_x() + turn * grid_x();
    const int rows = kv_heads * parts(), row = i / across() % rows, part = row % parts(), kv_head = row / parts(), left = heads - part * ROW_HEADS;
$if packed
    const SequencePart own = part_of_sequence(offsets, sequences, across() - 1 - i % across(), TOKENS, true, tokens);
    return {kv_head, static_cast<int>(own.number) * TOKENS, part, kv_head * heads + part * ROW_HEADS, left < ROW_HEADS ? left : ROW_HEADS,
            static_cast<int>(own.sequence), static_cast<int>(own.of.first), static_cast<int>(own.of.length), own.of_none};
$else
    return {i / across() / rows, kv_head, (across() - 1 - i % across()) * TOKENS, part, kv_head * heads + part * ROW_HEADS, left < ROW_HEADS ? left : ROW_HEADS};
$end
  }
};

// By the last warpgroup: three of its warps load bits of the item to come, the first one copies tiles of the item in turn. load(a token's bits, item, token);
// copy(item, the bits of its tokens). all_bits: of two items, in shared memory.
template <class Load, class Copy> static inline void serve_items(const TokenItems& items, uint32_t* all_bits, int words, const Load& load, const Copy& copy) {
  const int loader = uniform(warp()) - 4 * GROUPS - 1;
$if packed
  __shared__ TokenItem places[4];  // of a warp each: few registers are left
  TokenItem& item = places[loader + 1];
  int served = 0;  // items that were there
$end
#pragma unroll 1
  for (int i = 0; i < items.own_count(); ++i) {
$if packed
    {
      const TokenItem found = items.own(i);
      if (!found.is_there()) continue;
      sync_warp();
      if (lane() == 0) item = found;
      sync_warp();
    }
$else
    const TokenItem item = items.own(i);
$end
    uint32_t* const bits = all_bits + ${packed ? 'served++' : 'i'} % 2 * TOKENS * words;
#pragma unroll 1
    for (int of = loader; loader >= 0 && of < TOKENS; of += 3) load(bits + of * words, item, item.first_token + of);
    sync_some(1, WARPGROUP);  // the bits are there, and those of the item before are not needed any more
    if (loader < 0) copy(item, bits);
  }
}
