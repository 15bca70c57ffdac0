// Hopper vocabulary of the attention kernels' gradients: blocks of keys that share a bias add to the sums of its gradient one after another,
// in the order of the list, so that the bits are the same each time. As in flash_attention_bwd/sm90_attention_order.h two threads of the warpgroup that
// copies wait, for the block before and until additions are seen. All go through the same turns in the same order: each is about a turn behind
// the one before. Nobody waits for a block later in the list, neither here nor there: the first of all that are not done never waits.
#pragma once
#include "flash_attention_bwd/sm90_attention_dense.h"
#include "flash_attention_bwd/sm90_attention_finish.h"
#include "device/sm90/sm90_uniform.h"

// counters: AddOrder's, of CHAINS chains by UNITS of the `units`; then how many turns have added, by tile of the sums and by KEYS keys in it, 64
// or 128; 0 at first. WARPS warps of a block add. BOUNDED: rows of the batch have their own lengths, so that a block may skip turns that others
// take. Without IN_TURN additions come in any order, and nothing here does anything.
template <bool IN_TURN, int KEYS, int WARPS, bool BOUNDED, int UNITS, int CHAINS> struct BiasOrder {
  static constexpr uint32_t BARRIER_BYTES = IN_TURN ? 48 : 0;
  static constexpr int COLUMNS = 128 / KEYS;
  int32_t* counters;
  const int64_t& units;
  const View &q, &bias;
  const int64_t& tiles;  // of keys
  int heads_a_kv_head;
  int key;               // of the block's keys the first that it adds for
  uint32_t barriers;     // in shared memory

  // In a ring of two turns: the block may add; all its warps have added; the ring's place is free.
  uint32_t opened(uint32_t stage) const { return barriers + stage * 8; }
  uint32_t added(uint32_t stage) const { return opened(stage) + 16; }
  uint32_t passed(uint32_t stage) const { return opened(stage) + 32; }

  // By one thread.
  void init() const {
    for (uint32_t i = 0; IN_TURN && i < 2; ++i) barrier_init(opened(i), 1), barrier_init(added(i), WARPS), barrier_init(passed(i), 1);
  }
  // A warp of those that add, before its additions; and one of its lanes after them, when the others' are before it.
  void wait(uint32_t stage, uint32_t parity) const {
    if (IN_TURN) barrier_wait(opened(stage), parity);
  }
  void tell(uint32_t stage) const {
    if (IN_TURN) barrier_arrive(added(stage));
  }

  // One thread: opens turns, from the first-th to before `end`, when the blocks before this one have added theirs; and those of `order`, for
  // additions to dq, which come a turn later. Without IN_TURN those of `order` alone.
  template <class Turn, class Order, class Block> void open_turns(const Order& order, const Block& block, int first, int end) const {
    if constexpr (!IN_TURN) {
      order.template open_turns<Turn>(block, first, end);
    } else {
      if (first == end) return;
#pragma unroll 1
      for (Turn turn(block, first);; turn.next(block)) {
        if (turn.number < end) open(block, turn);
        if (turn.number > first) order.open_turn(block, turn.last(block));
        if (turn.number == end) return;
      }
    }
  }
  // Another warp: tells the next block of each turn's additions when all will see them.
  template <class Turn, class Block> void pass_turns(const Block& block, int first, int end) const {
    const bool skips = BOUNDED && bias.shape[0] == 1;
    if (skips) skip(block, block.end_step, block.blocks_a_head);
    if (lane() == 0) {
#pragma unroll 1
      for (Turn turn(block, first); turn.number < end; turn.next(block)) {
        const uint32_t stage = turn.template stage<2>();
        barrier_wait(added(stage), turn.template parity<2>());
        barrier_arrive(passed(stage));
        count_up(place(block, turn.head, turn.step));
      }
    }
    if (skips) skip(block, 0, block.first_step);
  }

 private:
  template <class Turn, class Block> void open(const Block& block, const Turn& turn) const {
    const int32_t* const from = place(block, turn.head, turn.step);
    const int count = before(block, turn.head);
    const uint32_t stage = turn.template stage<2>();
    for (int seen = 0; seen < count;) seen = load(from);
    barrier_wait(passed(stage), turn.template parity<2>() ^ 1);
    barrier_arrive(opened(stage));
  }
  // Steps from `first` to before `end` are counted as if the block had added, each when it would be its turn. By a warp.
  template <class Block> void skip(const Block& block, int first, int end) const {
    int step = end - 1 - static_cast<int>(later(thread_x()) % WARP), head = 0;  // each lane as its turns come
    while (any_in_warp(step >= first)) {
      if (step < first) continue;
      int32_t* const counter = place(block, head, step);
      if (load(counter) < before(block, head)) continue;
      count_up(counter);
      if (++head == heads_a_kv_head) head = 0, step -= WARP;
    }
  }
  // How many turns add to what a turn of that head of the group adds to, before it: those of kv heads, then of rows of the batch, then of heads.
  template <class Block> int before(const Block& block, int head) const {
    const bool by_rows = bias.shape[0] == 1;
    const int row = by_rows ? static_cast<int>(block.sequence.batch) : 0;
    const int kv_heads = by_rows ? block.kv_head * static_cast<int>(low_word(q.shape[0])) : block.kv_head;
    return bias.shape[1] == 1 ? (kv_heads + row) * heads_a_kv_head + head : row;
  }
  template <class Block> int32_t* place(const Block& block, int head, int step) const {
    const int first = block.first_key + key, row = bias.shape[0] == 1 ? 0 : static_cast<int>(block.sequence.batch);
    const int plane = row * static_cast<int>(bias.shape[1]) + (bias.shape[1] == 1 ? 0 : block.first_head + head);  // as dense_tile(), in 32 bits
    const int tile = (plane * static_cast<int>(tiles) + first / 128) * block.blocks_a_head + step;
    return counters + before_tiles() + static_cast<uint32_t>(tile * COLUMNS + first / KEYS % COLUMNS);
  }
  uint32_t before_tiles() const { return 1 + low_word(units) / UNITS * CHAINS; }
  static int load(const int32_t* from) {
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
  }
};
