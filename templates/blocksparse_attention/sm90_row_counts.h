// Hopper vocabulary of blocksparse_attention's gradients: when everything has been added to the sums of dq of some rows. A list of turns says beforehand
// how often blocks of keys will add to them, so dq is made of rows one after another, and not of a head only when all of its blocks are done.
#pragma once
#include "blocksparse_attention/sm90_listed_turns.h"

// By ROWS rows, a turn's: minus how many turns are yet to be added. Beforehand 0, too.
template <int ROWS> struct RowCounts {
  int32_t* counts;

  // All turns of a block of keys, which LANES lanes share.
  template <int LANES, class Block> void add(const Block& block, int heads, int by) const {
    const ListsOfKeys& lists = block.lists;
#pragma unroll 1
    for (int head = 0; head < (lists.turns == 0 ? 0 : heads); ++head) {
      const int32_t* const before = lists.numbers + (head * lists.head_words + lists.row_words);
      const int end = before[block.end_step];
#pragma unroll 1
      for (int at = before[block.first_step] + (LANES == 1 ? 0 : lane()); at < end; at += LANES) {
        const int row = static_cast<int>(block.first_row / ROWS) + head * block.blocks_a_head + lists.numbers[head * lists.head_words + at];
        asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" : : "l"(counts + row), "r"(by) : "memory");
      }
    }
  }
  // When the block has added them, by those who know that.
  template <int LANES, class Block> void tell(const Block& block, int heads) const {
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
    add<LANES>(block, heads, 1);
  }
};
