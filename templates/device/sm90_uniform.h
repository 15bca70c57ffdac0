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

// barrier_wait by a whole warp.
static inline void barrier_wait_all(uint32_t barrier, uint32_t parity) {
  while (!any_in_warp(barrier_try_wait(barrier, parity))) {
  }
}
