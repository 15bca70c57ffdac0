// GPU vocabulary: of each block of a kv head the tokens that select it, made on the device in three launches: a bit each block of each
// token; how many tokens a block has; their numbers, and in what parts they are gone through. Part of a template.
#pragma once
#include "native_sparse_attention/named_blocks.h"
$if packed
#include "native_sparse_attention/packed_tokens.h"
$end
#include "native_sparse_attention/select_blocks_gpu.h"

static inline View no_view() { return {nullptr, -1, {}, {}}; }

// A part of a block's list: `count` tokens from `first` on, numbers in the kv head's list. block: -1: none.
struct ListPart {
  int32_t block, first, count, unused;
};
// A block's parts.
struct BlockParts {
  int32_t first, count;
};

struct TokenLists {
  int32_t *bits, *counts, *tokens;  // [kv rows][words][tokens]; [kv rows][blocks]; [kv rows][list_tokens]
  ListPart* parts;                  // [kv rows][list_parts]
  BlockParts* of_block;             // [kv rows][blocks]
  int all_tokens, blocks, words, list_tokens, list_parts, part_tokens, size;
$if sliced
  int first_block;  // `bits` are of so many words of blocks from this one on; others come in other turns
$end
$if packed
  const int32_t* offsets;  // of sequences; `blocks` are those of all, whose own numbers `bits` have
  int64_t sequences;

  SequencePart block_of(int block) const { return part_of_sequence(offsets, sequences, block, size, true, all_tokens); }
$end

  // Word by word, a thread a token.
  void mark(const NamedBlocks& named, int64_t kv_row, int64_t batch, int64_t kv_head, int token) const {
    if (token >= all_tokens) return;
$if packed
$if sliced
    // Bits are of a block's number among those of all sequences.
    const SequencePart place = part_of_sequence(offsets, sequences, token, 1, false, all_tokens);
    if (place.of_none) return;
    const int own = static_cast<int>(place.number) / size, before = static_cast<int>(place.first_in_parts(size) / size) - first_block;
$else
    const SequenceTokens sequence = sequence_of(offsets, sequences, token, all_tokens);
    if (sequence.length == 0) return;
    const int own = (token - static_cast<int>(sequence.first)) / size;
$end
$else
    const int own = token / size${sliced ? ', before = -first_block' : ''};
$end
    const int32_t* const row = named.row(batch, token, kv_head);
    const int count = static_cast<int>(named.count(batch, token, kv_head));
#pragma unroll 1
    for (int word = 0; word < words; ++word) {
      uint32_t on = 0;
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        const int block = row[i];
$if sliced
        if (block < 0 || block > own) continue;
        const int at = before + block;
        if (at >= 0 && at / 32 == word) on |= 1u << at % 32;
$else
        if (block >= 0 && block <= own && block / 32 == word) on |= 1u << block % 32;
$end
      }
      bits[(kv_row * words + word) * all_tokens + token] = static_cast<int32_t>(on);
    }
  }
  bool has(int64_t kv_row, int block, int token) const {
    return token < all_tokens && (static_cast<uint32_t>(bits[(kv_row * words + ${sliced ? '(block - first_block)' : 'block'} / 32) * all_tokens + token]) >> block % 32 & 1) != 0;
  }
  // By a warp.
  void count_tokens(int64_t kv_row, int block) const {
    int found = 0;
$if packed
    const SequencePart part = block_of(block);
    const int number = static_cast<int>(part.number), end = part.of_none ? 0 : static_cast<int>(part.of.first + part.of.length);
#pragma unroll 4
    for (int token = static_cast<int>(part.of.first) + number * size + lane(); token < end; token += WARP) found += has(kv_row, ${sliced ? 'block' : 'number'}, token) ? 1 : 0;
$else
#pragma unroll 4
    for (int token = block * size + lane(); token < all_tokens; token += WARP) found += has(kv_row, block, token) ? 1 : 0;
$end
    found = sum_of_warp(found);
    if (lane() == 0) counts[kv_row * blocks + block] = found;
  }
  int parts_of(int count) const { return (count + part_tokens - 1) / part_tokens; }

  // By a warp, after all were counted.
  void list_block(int64_t kv_row, int block) const {
    int before = 0, parts_before = 0;
#pragma unroll 4
    for (int other = lane(); other < block; other += WARP) {
      const int count = counts[kv_row * blocks + other];
      before += count, parts_before += parts_of(count);
    }
    before = sum_of_warp(before), parts_before = sum_of_warp(parts_before);
    const int count = counts[kv_row * blocks + block], own_parts = parts_of(count);
    ListPart* const to_part = parts + kv_row * list_parts;
#pragma unroll 1
    for (int i = lane(); i < own_parts; i += WARP) {
      const int first = i * part_tokens;
      to_part[parts_before + i] = {block, before + first, count - first < part_tokens ? count - first : part_tokens, 0};
    }
    if (lane() == 0) of_block[kv_row * blocks + block] = {parts_before, own_parts};
    if (block == blocks - 1) {
#pragma unroll 1
      for (int i = parts_before + own_parts + lane(); i < list_parts; i += WARP) to_part[i] = {-1, 0, 0, 0};
    }
    int32_t* const to = tokens + kv_row * list_tokens + before;
    constexpr int AT_ONCE = 4;
    int found = 0;
$if packed
    const SequencePart part = block_of(block);
    const int number = static_cast<int>(part.number), end = part.of_none ? 0 : static_cast<int>(part.of.first + part.of.length);
#pragma unroll 1
    for (int first = static_cast<int>(part.of.first) + number * size; first < end; first += AT_ONCE * WARP) {
$else
#pragma unroll 1
    for (int first = block * size; first < all_tokens; first += AT_ONCE * WARP) {
$end
      bool on[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) on[i] = ${packed ? sliced ? 'first + i * WARP + lane() < end && has(kv_row, block,' : 'first + i * WARP + lane() < end && has(kv_row, number,' : 'has(kv_row, block,'} first + i * WARP + lane());
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const uint32_t all = or_of_warp(on[i] ? 1u << lane() : 0);
        if (on[i]) to[found + ones_in(all & ((1u << lane()) - 1))] = first + i * WARP + lane();
        found += ones_in(all);
      }
    }
  }
};
