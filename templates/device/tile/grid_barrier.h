// Vocabulary: the barrier of a cooperative launch ("cooperative": true in the spec), over all threads of its grid, or all work items of a
// CPU's. The launch takes it as its argument "grid_barrier".
//
//   grid_barrier();   until every thread of every block has called it: what was written to global memory before it is read behind it, but
//                     not by load_once. All of a grid's threads call it the same number of times, from wherever control is the same in
//                     a block. On a CPU it keeps what the compiler keeps over a call of a function: no tile of AMX and no tile configuration.
//   GridBarrier       its type: functions take a `const GridBarrier&`
#pragma once
$if arch.platform == 'cpu'
#include "device/cpu.h"
// The library's: it runs the other items meanwhile, or waits for other threads.
struct GridBarrier {
  void (*meet)();
  void operator()() const { meet(); }
};
$else
#include "device/gpu.h"
$if arch.platform == 'simt'
static void (*simt_grid_barrier)();
extern "C" __attribute__((visibility("default"))) void ejk_simt_bind_grid_barrier(void (*meet)()) { simt_grid_barrier = meet; }
$elif arch.platform == 'cuda'
// By one thread of a block: with the barriers around them, for all of its threads (PTX ISA, "Causality order").
static inline uint32_t arrive_at_grid_barrier(uint32_t* word, uint32_t by) {
  uint32_t before;
  asm volatile("fence.acq_rel.gpu; atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(__cvta_generic_to_global(word)), "r"(by) : "memory");
  return before;
}
static inline uint32_t look_at_grid_barrier(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(word)) : "memory");
  return value;
}
static inline void before_grid_barrier() {}
static inline void behind_grid_barrier() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }
static inline void wait_at_grid_barrier() {}
$else
// A wave's release covers its own writes only (LLVM, "User Guide for AMDGPU Backend", memory model): every wave has its own.
static inline uint32_t arrive_at_grid_barrier(uint32_t* word, uint32_t by) {
  return __hip_atomic_fetch_add(word, by, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
static inline uint32_t look_at_grid_barrier(const uint32_t* word) {
  return __hip_atomic_load(word, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}
static inline void before_grid_barrier() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
static inline void behind_grid_barrier() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
static inline void wait_at_grid_barrier() { __builtin_amdgcn_s_sleep(1); }
$end

// The word counts arrivals in its low 31 bits. One block adds what they lack to 2^31, so that the last arrival, of any block, leaves them
// at 0 and turns the highest bit over, which the others wait for: it is ready for the next barrier, and for the next replay of a graph.
struct GridBarrier {
  uint32_t* word;
  uint32_t blocks;

  void operator()() const {
$if arch.platform == 'simt'
    simt_grid_barrier();
$else
    before_grid_barrier();
    sync_block();
    if (thread_x() == 0) {
      constexpr uint32_t turn = 0x80000000u;
      const bool first = block_x() == 0 && block_y() == 0 && block_z() == 0;
      const uint32_t before = arrive_at_grid_barrier(word, first ? turn - (blocks - 1) : 1);
      while (((look_at_grid_barrier(word) ^ before) & turn) == 0) wait_at_grid_barrier();
      behind_grid_barrier();
    }
    sync_block();
    $if arch.platform == 'hip'
    behind_grid_barrier();
    $end
$end
  }
};
$end
