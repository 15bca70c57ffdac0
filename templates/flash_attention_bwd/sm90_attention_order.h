// Hopper vocabulary of the attention kernels' gradients: blocks of keys add to the sums of the same rows one after another, in the order of
// their keys, so that the bits are the same each time. What takes long, two threads of the warpgroup that copies do: one waits for the block
// before, the other until additions are seen. So warpgroups that multiply only look at barriers in shared memory. Blocks go through queries
// backwards: then the blocks of the first keys, whose turn is first, also meet the queries first, be it causal, in a window or neither.
#pragma once
#include "flash_attention_bwd/sm90_attention_keys.h"
#include "device/sm90/sm90_uniform.h"

// done: 0 at first; how often clusters have taken from the list, then by ROWS rows and chain how many have added. A cluster has CHAINS blocks,
// each of which adds features of its own: its chain. A block has PARTS warpgroups, one or two, that add each elements of their own, in an order
// of their own, so that no part waits for another's: the second counts in the upper half of a counter's bits. Without ORDERED additions come
// in any order, and nothing here does anything.
template <bool ORDERED, int CHAINS, int PARTS> struct AddOrder {
  static constexpr int CHAIN_COUNT = CHAINS;
  static constexpr uint32_t BARRIER_BYTES = ORDERED ? 48 * PARTS : 0;
  int32_t* done;
  int64_t window_left;
  int chain;
  uint32_t barriers;  // in shared memory

  // In a ring of two turns: this part may add; all its warps have added; the ring's place is free.
  uint32_t open(uint32_t number, int part) const { return barriers + part * 48 + number % 2 * 8; }
  uint32_t added(uint32_t number, int part) const { return open(number, part) + 16; }
  uint32_t passed(uint32_t number, int part) const { return open(number, part) + 32; }
  static uint32_t parity(uint32_t number) { return number / 2 % 2; }

  // By one thread. warps: those of a part.
  void init(int warps) const {
    if (!ORDERED) return;
    for (uint32_t i = 0; i < 2; ++i)
      for (int part = 0; part < PARTS; ++part)
        barrier_init(open(i, part), 1), barrier_init(added(i, part), warps), barrier_init(passed(i, part), 1);
  }

  // A warp of those that add, before and after its additions of turn `number`.
  void wait(uint32_t number, int part = 0) const {
    if (ORDERED) barrier_wait(open(number, part), parity(number));
  }
  void tell(uint32_t number, int part = 0) const {
    if (!ORDERED) return;
    sync_warp();
    if (lane() == 0) barrier_arrive(added(number, part));
  }

  // Warps 1 and 2, a thread of each: through all blocks of keys that `queue` gives out. The first opens turns, those of `of_bias`, too. After each the
  // second calls then(entry, place, parity): of the entry's place in the queue, and how often that has been gone round.
  template <class Turn, class Queue, class OfBias, class Then>
  void follow(const Queue& queue, int heads_a_kv_head, const OfBias& of_bias, Then then) const {
    int first = 0;
    uint32_t parities = 0;
    queue.read([&](const auto& entry) {
      const int end = first + entry.block.steps() * heads_a_kv_head, place = &entry != queue.entries;
      if (lane() == 0 && warp() == 1) of_bias.template open_turns<Turn>(*this, entry.block, first, end);
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
    for (Turn turn(block, first); turn.number < end; turn.next(block)) open_turn(block, turn);
  }
  template <class Turn, class Block> void open_turn(const Block& block, const Turn& turn) const {
$if not (by_blocks and ordered)  // else the turn knows
    const int key = turn.step * Block::ROW_COUNT + first_seen_key(block.sequence.offset), hidden = key > 0 ? key / Block::COUNT : 0;
$end
    const int32_t* const from = place(block, turn.block);
    uint32_t seen = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      while (count_of(seen, part) < ${by_blocks and ordered ? 'turn.before' : 'block.first_key / Block::COUNT - hidden'})
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(from) : "memory");
      barrier_wait(passed(turn.number, part), parity(turn.number) ^ 1);
      barrier_arrive(open(turn.number, part));
    }
  }
  static int count_of(uint32_t seen, int part) { return static_cast<int>(PARTS == 1 ? seen : seen >> 16 * part & 0xffff); }
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
      barrier_wait(added(turn.number, 0), parity(turn.number));
      barrier_arrive(passed(turn.number, 0));
      uint32_t parts = 1;
      if constexpr (PARTS == 2) {
        const bool both = barrier_test(added(turn.number, 1), parity(turn.number));
        if (!both) count_up(block, turn.block, 1), barrier_wait(added(turn.number, 1), parity(turn.number));
        barrier_arrive(passed(turn.number, 1));
        parts = 0x10000 + both;
      }
      count_up(block, turn.block, parts);
    }
  }
  template <class Block> void count_up(const Block& block, int rows, uint32_t parts) const {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(place(block, rows)), "r"(parts) : "memory");
  }

  template <class Block> int32_t* place(const Block& block, int rows) const {
    return done + 1 + (block.first_row / Block::ROW_COUNT + rows) * CHAINS + chain;
  }
};
