// Hopper vocabulary: numbers of pieces of work, taken by clusters one after another: in turn, or as each is done with one (DYNAMIC).
#pragma once

// Shared memory at `at`: BYTES, aligned to 16. READERS warps of every block read the numbers, each all of them.
template <int BLOCKS, bool DYNAMIC, int READERS> struct WorkQueue {
  static constexpr uint32_t AHEAD = 2, BYTES = 64;
  uint32_t at;
  uint32_t full(uint32_t i) const { return at + 16 * i; }
  uint32_t empty(uint32_t i) const { return full(i) + 8; }
  uint32_t number(uint32_t i) const { return at + 16 * AHEAD + 4 * i; }
  static int clusters() { return grid_x() / BLOCKS; }
  static int first() { return block_x() / BLOCKS; }

  // By one thread, before fence_barrier_init.
  void init() const {
    for (uint32_t i = 0; DYNAMIC && i < AHEAD; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), READERS * BLOCKS);
    }
  }

  // By one thread of block 0 of the cluster. The first number that is too high is given out too: readers wait for it. `counter`: 0 once the
  // launch before this one has ended.
  void give_out(int end, int32_t* counter) const {
    if (first() >= end) return;
    wait_for_previous_launch();
    for (uint32_t turn = 0;; ++turn) {
      const int taken = atomicAdd(counter, 1) + clusters();
      const uint32_t i = turn % AHEAD;
      barrier_wait(empty(i), turn / AHEAD % 2 ^ 1);
      if constexpr (BLOCKS == 1) {  // launched without a cluster, whose instructions are illegal then
        asm volatile("st.shared.u32 [%0], %1;" : : "r"(number(i)), "r"(taken) : "memory");
        barrier_arrive(full(i));
      }
      for (int rank = 0; BLOCKS > 1 && rank < BLOCKS; ++rank) {
        barrier_arrive_expect_in_block(full(i), rank, 4);
        store_async_in_block(number(i), taken, full(i), rank);
      }
      if (taken >= end) return;
    }
  }
};

// One warp's view of it: all its lanes call next() after work on `number`, which was not too high.
template <int BLOCKS, bool DYNAMIC, int READERS> struct WorkReader {
  using Queue = WorkQueue<BLOCKS, DYNAMIC, READERS>;
  const Queue queue;
  int number = Queue::first();
  uint32_t turn = 0;

  explicit WorkReader(const Queue& from) : queue(from) {}
  void next() {
    if constexpr (!DYNAMIC) {
      number += Queue::clusters();
    } else {
      const uint32_t i = turn % Queue::AHEAD;
      barrier_wait(queue.full(i), turn / Queue::AHEAD % 2);
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(number) : "r"(queue.number(i)) : "memory");
      sync_warp();
      if (lane() == 0) barrier_release<BLOCKS>(queue.empty(i), 0);
      ++turn;
    }
  }
};
