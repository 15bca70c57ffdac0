// Hopper vocabulary of the attention kernels' gradients: blocks of keys add to the sums of the same rows one after another, in the order of
// their keys, so that the bits are the same each time. What takes long, two threads of the warpgroup that copies do: one waits for the block
// before, the other until additions are seen. So warpgroups that multiply only look at barriers in shared memory. Blocks go through queries
// backwards: then the blocks of the first keys, whose turn is first, also meet the queries first, be it causal, in a window or neither.
#pragma once
#include "device/sm90_attention_keys.h"

// done: 0 at first; how often clusters have taken from the list, then by ROWS rows and chain how many have added. A cluster has CHAINS blocks,
// each of which adds features of its own: its chain. Without ORDERED additions come in any order, and nothing here does anything.
template <bool ORDERED, int CHAINS> struct AddOrder {
  static constexpr int CHAIN_COUNT = CHAINS;
  int32_t* done;
  int64_t window_left;
  int chain;
  uint32_t barriers;  // in shared memory

  // In a ring of two turns: this block may add; all its warps have added; the ring's place is free.
  uint32_t open(uint32_t number) const { return barriers + number % 2 * 8; }
  uint32_t added(uint32_t number) const { return open(number) + 16; }
  uint32_t passed(uint32_t number) const { return open(number) + 32; }
  static uint32_t parity(uint32_t number) { return number / 2 % 2; }

  // By one thread. warps: those that add.
  void init(int warps) const {
    if (!ORDERED) return;
    for (uint32_t i = 0; i < 2; ++i) barrier_init(open(i), 1), barrier_init(added(i), warps), barrier_init(passed(i), 1);
  }

  // A warp of those that add, before and after its additions of turn `number`.
  void wait(uint32_t number) const {
    if (ORDERED) barrier_wait(open(number), parity(number));
  }
  void tell(uint32_t number) const {
    if (!ORDERED) return;
    sync_warp();
    if (lane() == 0) barrier_arrive(added(number));
  }

  // Warps 1 and 2, a thread of each: through all blocks of keys that `queue` gives out. After each the second calls then(entry, place, parity): of
  // the entry's place in the queue, and how often that has been gone round.
  template <class Turn, class Queue, class Then> void follow(const Queue& queue, int heads_a_kv_head, Then then) const {
    int first = 0;
    uint32_t parities = 0;
    queue.read([&](const auto& entry) {
      const int end = first + entry.block.steps() * heads_a_kv_head, place = &entry != queue.entries;
      if (lane() == 0 && warp() == 1) open_turns<Turn>(entry.block, first, end);
      if (lane() == 0 && warp() == 2) {
        pass_turns<Turn>(entry.block, first, end);
        then(entry, place, parities >> place & 1);
      }
      first = end, parities ^= 1 << place;
    });
  }

  // One thread: opens each turn, from the first-th to before `end`, when the blocks of keys before this one which go through its rows have
  // added to them.
  template <class Turn, class Block> void open_turns(const Block& block, int first, int end) const {
    if (!ORDERED) return;
#pragma unroll 1
    for (Turn turn(block, first); turn.number < end; turn.next(block)) {
      const int key = turn.step * Block::ROW_COUNT + first_seen_key(block.sequence.offset), hidden = key > 0 ? key / Block::COUNT : 0;
      const int32_t* const from = place(block, turn.block);
      int32_t seen;
      do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(from) : "memory");
      while (seen < block.first_key / Block::COUNT - hidden);
      barrier_wait(passed(turn.number), parity(turn.number) ^ 1);
      barrier_arrive(open(turn.number));
    }
  }
  // The first key that query 0 would see, were there keys before the first; far before where the window is open, and never far after it.
  int first_seen_key(int64_t offset) const {
    constexpr int64_t FAR = int64_t{1} << 61, LIMIT = 1 << 30;  // as in visible_keys()
    if (window_left < 0 || window_left >= FAR) return -LIMIT;
    const int64_t key = (offset > FAR ? FAR : offset < -FAR ? -FAR : offset) - window_left;
    return static_cast<int>(key > LIMIT ? LIMIT : key < -LIMIT ? -LIMIT : key);
  }
  // Another thread: tells the next block of each turn's additions when all will see them.
  template <class Turn, class Block> void pass_turns(const Block& block, int first, int end) const {
    if (!ORDERED) return;
#pragma unroll 1
    for (Turn turn(block, first); turn.number < end; turn.next(block)) {
      barrier_wait(added(turn.number), parity(turn.number));
      barrier_arrive(passed(turn.number));
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" : : "l"(place(block, turn.block)) : "memory");
    }
  }

  template <class Block> int32_t* place(const Block& block, int rows) const {
    return done + 1 + (block.first_row / Block::ROW_COUNT + rows) * CHAINS + chain;
  }
};
