// Hopper vocabulary of mla_decode with a cache of bytes: loads, words in shared memory, and e4m3 as bfloat16.
#pragma once
#include "mla_decode/shared_words.h"

// 16 bytes that are read once, where they are wanted; else zeros. (ld.global.nc.L1::no_allocate)
static inline void load_bytes_16(Pack<uint32_t, 4>& x, const void* from, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n@p ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
               : "=&r"(x.at[0]), "=&r"(x.at[1]), "=&r"(x.at[2]), "=&r"(x.at[3]) : "l"(from), "r"(static_cast<int>(wanted)));
}
static inline int load_entry(const int32_t* from) {
  int x;
  asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(x) : "l"(from));
  return x;
}
static inline void load_shared_8(uint32_t from, uint32_t (&x)[2]) { asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(from) : "memory"); }
static inline void store_shared_8(uint32_t to, uint64_t x) { asm volatile("st.shared.b64 [%0], %1;" : : "r"(to), "l"(x) : "memory"); }

// Four e4m3 numbers as bfloat16, exactly, here and not before: bytes 0 and 1, bytes 2 and 3. (cvt.rn.f16x2.e4m3x2)
static inline void widen_four(uint32_t x, uint32_t& low, uint32_t& high) {
  uint32_t a, b;
  asm volatile("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}" : "=r"(a), "=r"(b) : "r"(x));
  const auto pair = [](uint32_t h) { return pack_pair<bfloat16>(to_float(half{static_cast<uint16_t>(h)}), to_float(half{static_cast<uint16_t>(h >> 16)})); };
  low = pair(a), high = pair(b);
}
