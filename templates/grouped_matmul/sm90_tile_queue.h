// Hopper vocabulary: the tiles of a grouped product, given by the warp that finds them to all of a cluster that work on them.
#pragma once
#include "device/matrix/grouped_walk.h"

// Shared memory at `at`: BYTES, aligned to 16. READERS warps of every block read the tiles, each all of them. Each cluster begins with the tile
// of its own number. The next it asks for when it is nearly done with one, so that a tile goes to who is free first (DYNAMIC), or takes in turn.
template <int BLOCKS, bool DYNAMIC, int READERS> struct TileQueue {
  static constexpr uint32_t AHEAD = 2, BYTES = 128;
  uint32_t at;
  uint32_t full(uint32_t i) const { return at + 16 * i; }
  uint32_t empty(uint32_t i) const { return full(i) + 8; }
  uint32_t asked() const { return at + 16 * AHEAD; }
  uint32_t tile(uint32_t i) const { return at + 16 * (AHEAD + 1) + 32 * i; }
  static int clusters() { return grid_x() / BLOCKS; }
  static int first() { return block_x() / BLOCKS; }

  // By one thread, before fence_barrier_init.
  void init() const {
    for (uint32_t i = 0; i < AHEAD; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), READERS * BLOCKS);
    }
    barrier_init(asked(), 1);
  }

  // By one thread of block 0 of the cluster, once for each tile.
  void ask() const { barrier_arrive(asked()); }

  // By one warp of block 0 of the cluster. After the last tile comes one of no bands. `counter`: 0 once the launch before this one has ended.
  template <class Walk> void give_out(Walk& walk, int32_t* counter) const {
    GroupTile found;
    int number = first();
    bool more = walk.find(number, found);
    if (DYNAMIC && more) wait_for_previous_launch();
    for (uint32_t turn = 0; more; ++turn) {
      barrier_wait(asked(), turn % 2);
      if (DYNAMIC && lane() == 0) number = atomicAdd(counter, 1);
      number = clusters() + (DYNAMIC ? shuffle(number, 0) : number);
      more = walk.find(number, found);
      if (!more) found.bands = 0;
      barrier_wait(empty(turn % AHEAD), turn / AHEAD % 2 ^ 1);
      put(turn % AHEAD, found);
    }
  }

 private:
  void put(uint32_t i, const GroupTile& found) const {
    constexpr int WORDS = 5;
    const int word = lane() == 0 ? found.group : lane() == 1 ? found.row : lane() == 2 ? found.end : lane() == 3 ? found.column : found.bands;
    const uint32_t to = tile(i) + 4 * lane();
    if constexpr (BLOCKS == 1) {  // launched without a cluster, whose instructions are illegal then
      if (lane() < WORDS) asm volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(word) : "memory");
      sync_warp();
      if (lane() == 0) barrier_arrive(full(i));
    }
    for (int rank = 0; BLOCKS > 1 && rank < BLOCKS; ++rank) {
      if (lane() == 0) barrier_arrive_expect_in_block(full(i), rank, 4 * WORDS);
      sync_warp();
      if (lane() < WORDS) store_async_in_block(to, word, full(i), rank);
    }
  }
};

// One warp's view of it: all its lanes call next() after work on `tile`.
template <int BLOCKS, bool DYNAMIC, int READERS> struct TileReader {
  using Queue = TileQueue<BLOCKS, DYNAMIC, READERS>;
  const Queue queue;
  GroupTile tile;
  uint32_t turn = 0;

  TileReader(const Queue& from, const GroupTile& first) : queue(from), tile(first) {}
  bool more() const { return tile.bands > 0; }
  void next() {
    const uint32_t i = turn % Queue::AHEAD;
    barrier_wait(queue.full(i), turn / Queue::AHEAD % 2);
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile.group), "=r"(tile.row), "=r"(tile.end), "=r"(tile.column) : "r"(queue.tile(i)) : "memory");
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(tile.bands) : "r"(queue.tile(i) + 16) : "memory");
    sync_warp();
    if (lane() == 0) barrier_release<BLOCKS>(queue.empty(i), 0);
    ++turn;
  }
};
