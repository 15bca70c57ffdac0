// Hopper vocabulary of mla_decode: words that a lane sends into the other block's shared memory, and copies that a barrier counts. Addresses of the other
// block are those of the cluster's shared memory (address_in_block).
#pragma once
#include "device/sm90.h"

// 16 bytes, and 4, which arrive at the barrier there. (st.async)
static inline void send_16(uint32_t to, const uint32_t (&x)[4], uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
               : : "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier) : "memory");
}
static inline void send_4(uint32_t to, uint32_t x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" : : "r"(to), "r"(x), "r"(barrier) : "memory");
}

static inline void load_shared_16(uint32_t from, uint32_t (&x)[4]) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
}
static inline uint32_t load_shared_4(uint32_t from) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}
static inline void store_shared_16(uint32_t to, const Pack<uint32_t, 4>& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" : : "r"(to), "r"(x.at[0]), "r"(x.at[1]), "r"(x.at[2]), "r"(x.at[3]) : "memory");
}
static inline void store_shared_2(uint32_t to, uint16_t x) { asm volatile("st.shared.b16 [%0], %1;" : : "r"(to), "h"(x) : "memory"); }

// This thread arrives at the barrier when all its copies before this have (copy_async_16). (cp.async.mbarrier.arrive.noinc)
static inline void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(barrier) : "memory");
}
