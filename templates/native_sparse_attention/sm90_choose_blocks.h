// Hopper vocabulary: choose_blocks (select_blocks_gpu.h) where a lane holds the importance of all blocks that it looks at. A part of a template.
#pragma once
#include "native_sparse_attention/select_blocks_gpu.h"

// What the lanes of a warp tell each other.
struct HopperWarp {
  enum { UNROLLED = 4 };
  static uint32_t where(bool x) { return lanes_where(x); }
  static uint32_t any(uint32_t x) { return static_cast<uint32_t>(uniform(static_cast<int>(x))); }
  static int sum(int x) {
    int y;
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
  }
};

// Of a query whose own block is no later than number 32 HELD.
template <int HELD> struct HeldImportance {
  uint32_t order[HELD] = {};  // of block 32 i + lane(), and 0 where that is not between block 0 and the query's own

  // Returns the bits in which they are not all the same.
  uint32_t load(const float* importance, int own) {
    const uint32_t one = order_of(importance[1]);
    uint32_t apart = 0;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const int block = WARP * i + lane();
      const bool other = block > 0 && block < own;
      order[i] = other ? order_of(importance[block]) : 0;
      apart |= other ? order[i] ^ one : 0;
    }
    return HopperWarp::any(apart);
  }
  int count_from(uint32_t least) const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < HELD; ++i) count += order[i] >= least ? 1 : 0;
    return HopperWarp::sum(count);
  }
  // Those above `least`, and the first `equal` of those that equal it.
  void store(uint32_t* bits, int own, bool own_too, bool all, uint32_t least, int equal) const {
#pragma unroll
    for (int i = 0; i <= HELD; ++i) {
      if (WARP * i > own) break;
      uint32_t word = (i == 0 ? 1 : 0) | (own_too && own / WARP == i ? 1u << own % WARP : 0);
      if (i < HELD) {
        const uint32_t here = order[i < HELD ? i : 0];
        const bool other = WARP * i + lane() > 0 && WARP * i + lane() < own;
        const uint32_t same = lanes_where(other && here == least);
        word |= lanes_where(other && (all || here > least || (here == least && __popc(same & ((1u << lane()) - 1)) < equal)));
        equal -= __popc(same);
      }
      if (lane() == 0) bits[i] = word;
    }
    sync_warp();
  }
};

template <int HELD> static inline void choose_held_blocks(uint32_t* bits, const float* importance, int own, int64_t count) {
  const int64_t room = room_beside(count, own);
  const bool all = room >= own - 1;
  HeldImportance<HELD> held;
  uint32_t apart = all ? 0 : held.load(importance, own);
#pragma unroll
  for (int by = 1; by < 32; by *= 2) apart |= apart >> by;
  uint32_t least = all ? 0 : order_of(importance[1]) & ~apart;
  bool exact = false;
#pragma unroll 1
  for (uint32_t bit = apart - apart / 2; !exact && bit > 0; bit >>= 1) {
    const int reach = held.count_from(least | bit);
    if (reach >= room) least |= bit;
    exact = reach == room;
  }
  const int64_t equal = all ? 0 : exact ? own : room - (least < 0xffffffffu ? held.count_from(least + 1) : 0);
  held.store(bits, own, count > 1, all, least, static_cast<int>(equal));
}
