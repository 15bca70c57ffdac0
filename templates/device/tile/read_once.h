// GPU vocabulary: asynchronous copies of what is read once, and so is the first to leave the L2 cache.
#pragma once
#include "device/gpu.h"

// As copy_async_16.
$if arch.platform == 'cuda'
static inline void copy_once_16(SharedPointer to, const void* from, bool wanted) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"
               :
               : "r"(to), "l"(from), "r"(wanted ? 16 : 0), "l"(policy)
               : "memory");
}
$else
static inline void copy_once_16(SharedPointer to, const void* from, bool wanted) { copy_async_16(to, from, wanted); }
$end
