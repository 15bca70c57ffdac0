// The attention kernels' gradients: turns of a block of keys that go through the query heads of a kv head step by step.
#pragma once

// All heads' turns of a step come before the next step's: blocks of keys that run side by side are at the same queries, whatever part of them each
// sees, so that L2 has these and their sums for all. Head after head, blocks that see fewer would be heads ahead.
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
