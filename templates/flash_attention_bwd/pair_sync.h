// GPU vocabulary of the attention kernels' gradients on mma.sync: one warp of a pair waits for what the other has written to shared memory.
//
//   arrive_pair(pair)  wait_pair(pair)     each by one of the pair's two warps, by all its lanes, in turns; who arrives does not wait
#pragma once
#include "device/gpu.h"

$if arch.platform == 'cuda'
// Barrier 0 is sync_block's.
static inline void arrive_pair(int pair) { asm volatile("barrier.arrive %0, 64;" : : "r"(pair + 1) : "memory"); }
static inline void wait_pair(int pair) { asm volatile("barrier.sync %0, 64;" : : "r"(pair + 1) : "memory"); }
$elif arch.platform == 'simt'
static inline void arrive_pair(int) { sync_block(); }
static inline void wait_pair(int) { sync_block(); }
$end
