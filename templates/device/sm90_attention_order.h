// Hopper vocabulary of the attention kernels' gradients: blocks of keys add to the sums of the same rows one after another, in the order of
// their keys, so that the bits are the same each time.
#pragma once
#include "device/sm90_attention_keys.h"

// done: 0 at first; the number of blocks that have started, then by ROWS rows and warpgroup how many blocks have added. Without ORDERED
// additions come in any order, and nothing here does anything.
template <bool ORDERED, int GROUPS> struct AddOrder {
  int32_t* done;
  int64_t window_left;
  int part;  // the warpgroup, of GROUPS; its barrier is 1 + part

  // The number of this block of the grid: those that it will wait for have started before it. By one warp.
  static int start(int32_t* done, int in_place) {
    if (!ORDERED) return in_place;
    int number = 0;
    if (lane() == 0) number = atomicAdd(done, 1);
    return shuffle(number, 0);
  }

  // rows: ROWS rows of the group's. The blocks of keys before this one which go through them have added to them.
  template <class Block> void wait(const Block& block, int rows) const {
    if (!ORDERED) return;
    if (thread_x() % WARPGROUP == 0) {
      int before = block.first_key / Block::COUNT;
      if (window_left >= 0) {
        const int64_t position = int64_t{rows % block.blocks_a_head} * Block::ROW_COUNT + block.sequence.offset;
        before -= position > window_left ? static_cast<int>((position - window_left) / Block::COUNT) : 0;
      }
      int32_t added;
      do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(added) : "l"(place(block, rows)) : "memory");
      while (added < before);
    }
    sync_some(1 + part, WARPGROUP);
  }
  // This one has; some time after it did, so that there is no long wait for the additions.
  template <class Block> void tell(const Block& block, int rows) const {
    if (!ORDERED) return;
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
    sync_some(1 + part, WARPGROUP);
    if (thread_x() % WARPGROUP == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" : : "l"(place(block, rows)) : "memory");
  }

  template <class Block> int32_t* place(const Block& block, int rows) const {
    return done + 1 + (block.first_row / Block::ROW_COUNT + rows) * GROUPS + part;
  }
};
