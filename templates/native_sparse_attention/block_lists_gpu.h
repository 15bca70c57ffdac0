// GPU vocabulary: the blocks that a token selected, as a list, where a bit each block of each token would be too large. By one warp.
#pragma once
#include "native_sparse_attention/select_blocks_gpu.h"

// The blocks in rising order, then -1. `bits` in shared memory, of blocks up to `own`.
static inline void store_block_list(int32_t* to, int length, const uint32_t* bits, int own) {
  int stored = 0;
#pragma unroll 1
  for (int first = 0; first <= own / 32; first += WARP) {
    const int at = first + lane();
    uint32_t word = at <= own / 32 ? bits[at] : 0;
    int before = 0, all = ones_in(word);  // of the lanes before this one; of those met so far
#pragma unroll 1
    for (int mask = 1; mask < WARP; mask *= 2) {
      const int other = shuffle_xor(all, mask);
      before += (lane() & mask) != 0 ? other : 0, all += other;
    }
#pragma unroll 1
    for (int i = stored + before; word != 0; word &= word - 1, ++i) to[i] = 32 * at + ones_in(~word & (word - 1));
    stored += all;
  }
#pragma unroll 1
  for (int i = stored + lane(); i < length; i += WARP) to[i] = -1;
}

// All words of a token's bits, by its list of so many. A lane sets the words whose number is its own, modulo the lanes.
static inline void load_listed_bits(uint32_t* bits, int words, const int32_t* list, int length) {
#pragma unroll 1
  for (int word = lane(); word < words; word += WARP) bits[word] = 0;
#pragma unroll 1
  for (int i = 0; i < length; ++i) {
    const int block = list[i];
    if (block < 0) break;
    if (block / 32 % WARP == lane()) bits[block / 32] |= 1u << block % 32;
  }
  sync_warp();
}
