// GPU vocabulary: asynchronous copies of what may be the first to leave the L2 cache.
#pragma once
#include "device/gpu.h"

//   cache_policy(first)                            for what leaves it first, or like everything else
//   copy_async_16(to, from, wanted, policy)        as the one without a policy
$if arch.platform == 'cuda'
static inline uint64_t cache_policy(bool first) {
  uint64_t early, normal;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(early));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return first ? early : normal;
}
static inline void copy_async_16(SharedPointer to, const void* from, bool wanted, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"
               :
               : "r"(to), "l"(from), "r"(wanted ? 16 : 0), "l"(policy)
               : "memory");
}
$else
static inline uint64_t cache_policy(bool) { return 0; }
static inline void copy_async_16(SharedPointer to, const void* from, bool wanted, uint64_t) { copy_async_16(to, from, wanted); }
$end
