// The attention kernels' gradients: in which order blocks of keys and their turns of queries come, so that launches end evenly and L2 has for all
// blocks what they share.
#pragma once
#include "flash_attention_bwd/attention_backward.h"

// find_keys() where those sequences come first that have most queries, by a whole warp: their blocks take longest, and the short ones fill what is left
// at a launch's end. Of many sequences as they lie: each is compared with each.
static inline bool find_keys_longest_first(const Sequences& sequences, int64_t& item, int block, Sequence& sequence, int64_t& keys) {
  constexpr int64_t MOST = 4 * WARP - 1;
  if (sequences.count > MOST) return find_keys(sequences, item, block, sequence, keys);
  const auto length = [&](int64_t n) { return n < sequences.count ? sequences.cum_queries[n + 1] - sequences.cum_queries[n] : 0; };
  const auto keys_of = [&](int64_t n) {  // the last: those in no sequence
    return static_cast<int>((n < sequences.count ? sequences.cum_keys[n + 1] : sequences.keys) - sequences.cum_keys[n]);
  };
  const auto blocks_of = [&](int64_t n) { return (keys_of(n) + block - 1) / block; };
#pragma unroll 1
  for (int64_t base = 0; base <= sequences.count; base += WARP) {
    const int64_t mine = base + lane();
    const int queries = mine <= sequences.count ? length(mine) : 0;
    int before = 0;
#pragma unroll 1
    for (int64_t other = 0; other <= sequences.count; ++other) {
      const int theirs = length(other);
      if (theirs > queries || (theirs == queries && other < mine)) before += blocks_of(other);
    }
    const bool here = mine <= sequences.count && item >= before && item < before + blocks_of(mine);
    int found = here ? lane() : WARP;
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
      const int other = shuffle_xor(found, mask);
      found = other < found ? other : found;
    }
    if (found == WARP) continue;
    item -= shuffle(before, found);
    keys = keys_of(base + found), sequence = sequences[base + found];
    return true;
  }
  return false;
}

$if by_steps
// A turn, as QueryTurns are, but all heads' of a step come before the next step's: blocks of keys that run side by side are at the same queries, whatever part of
// them each sees, so that L2 has these and their sums for all. Head after head, blocks that see fewer would be heads ahead.
struct StepTurns {
  int number, step, block, head = 0;

  template <class Block> explicit StepTurns(const Block& of, int number = 0)
      : number(number), step(of.backwards ? of.end_step - 1 : of.first_step), block(step) {}
  template <class Block> void next(const Block& of) {
    ++number, ++head;
    block += of.blocks_a_head;
    if (block < of.blocks_a_group) return;
    step += of.backwards ? -1 : 1;
    block = step, head = 0;
  }
  template <uint32_t N> uint32_t stage() const { return number % N; }
  template <uint32_t N> uint32_t parity() const { return number / N % 2; }
};

$end
