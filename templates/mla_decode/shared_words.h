// Hopper vocabulary of mla_decode: words in shared memory by address, and copies that a barrier counts.
#pragma once
#include "device/sm90.h"

static inline uint32_t load_shared_4(uint32_t from) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}
static inline void load_shared_16(uint32_t from, uint32_t (&x)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}
static inline void load_shared_two(uint32_t from, float (&x)[2]) { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(from) : "memory"); }
static inline void store_shared_two(uint32_t to, const Pack<float, 2>& x) { asm volatile("st.shared.v2.f32 [%0], {%1, %2};" : : "r"(to), "f"(x.at[0]), "f"(x.at[1]) : "memory"); }
static inline void store_shared_16(uint32_t to, const Pack<uint32_t, 4>& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" : : "r"(to), "r"(x.at[0]), "r"(x.at[1]), "r"(x.at[2]), "r"(x.at[3]) : "memory");
}
static inline void store_shared_4(uint32_t to, uint32_t x) { asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(x) : "memory"); }
static inline void store_shared_2(uint32_t to, uint16_t x) { asm volatile("st.shared.b16 [%0], %1;" : : "r"(to), "h"(x) : "memory"); }

// This thread arrives at the barrier when all its copies before this have (copy_async_16). (cp.async.mbarrier.arrive.noinc)
static inline void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
