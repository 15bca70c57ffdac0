// Hopper vocabulary: control flow and values that the compiler knows to be the same in all lanes of a warp. Addresses, descriptors of matrices
// and counters made of such values alone, where only such branches lead, lie in the warp's own registers; others are moved there before each
// wgmma.
#pragma once
#include "device/sm90.h"

// x, which is the same in all lanes. (redux.sync)
static inline int uniform(int x) {
  int y;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// The smallest, and the largest, of all lanes' x; the lanes where x holds. (redux.sync)
static inline int smallest_in_warp(int x) {
  int y;
  asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
static inline int largest_in_warp(int x) {
  int y;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
static inline uint32_t lanes_where(bool x) { return __ballot_sync(0xffffffff, x); }

// barrier_wait by a whole warp.
static inline void barrier_wait_all(uint32_t barrier, uint32_t parity) {
  while (!any_in_warp(barrier_try_wait(barrier, parity))) {
  }
}

// Whether the phase of that parity is over. (mbarrier.test_wait)
static inline bool barrier_test(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
  return over;
}

// x; what is made of it is made here, and not kept in registers from before.
static inline uint32_t keep_here(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// A place in a ring, and how often it has been gone round.
template <uint32_t N> struct Turn {
  uint32_t at = 0, parity = 0;
  void next(bool goes = true) {  // without a branch
    const bool ends = at + 1 == N;
    parity ^= goes && ends;
    at = !goes ? at : ends ? 0 : at + 1;
  }
  Turn last() const { return at == 0 ? Turn{N - 1, parity ^ 1} : Turn{at - 1, parity}; }
};
