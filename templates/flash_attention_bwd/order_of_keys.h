// The attention kernels' gradients: in which order blocks of keys and their turns of queries come, so that launches end evenly and L2 has for all
// blocks what they share.
#pragma once
#include "device/attention/longest_first.h"
#include "flash_attention_bwd/attention_backward.h"

// find_keys() where those sequences come first that have most queries: their blocks take longest.
static inline bool find_keys_longest_first(const Sequences& sequences, int64_t& item, int block, Sequence& sequence, int64_t& keys) {
  const Sequences by_keys{sequences.cum_keys, sequences.cum_queries, sequences.count, sequences.keys, sequences.queries, true, 0};
  int64_t items;
  if (!find_longest_first(by_keys, item, block, sequence, items)) return false;
  keys = sequence.queries;
  sequence = sequences[sequence.index];
  return true;
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
