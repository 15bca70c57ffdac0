// GPU vocabulary: 8-bit numbers (float8_e4m3, int8_t) widened, exactly, to pairs of bf16, by words of ordinary arithmetic: conversions by the processor's own
// instructions for that are a quarter as fast or less. CUDA from sm_90 on.
//
//   are_plain<T>(x)                    whether widen_to_bfloats may have the bytes of x: not where one is a NaN
//   widen_to_bfloats<T>(x, low, high)  low: bytes 0 and 1 of x as two bf16; high: bytes 2 and 3
#pragma once
#include "device/gpu.h"
#include "device/number/float8.h"

static inline uint32_t multiply_add_bfloats(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}

template <class T> static inline bool are_plain(uint32_t x);
template <> inline bool are_plain<float8_e4m3>(uint32_t x) { return (((x & 0x7f7f7f7f) + 0x01010101) & 0x80808080) == 0; }
template <> inline bool are_plain<int8_t>(uint32_t) { return true; }

// Two e4m3 numbers, in the upper bytes of the halves of x: as bits of bf16 they are 2^120 times too small, also where they are subnormal.
static inline uint32_t bfloats_of_float8(uint32_t x) {
  constexpr uint32_t TIMES_2_TO_120 = 0x7b807b80, MINUS_0 = 0x80008000;
  return multiply_add_bfloats((x & 0x80008000) | (x >> 4 & 0x07f007f0), TIMES_2_TO_120, MINUS_0);
}
// Two int8 numbers, in the lower bytes: 128 and the lower seven bits, less 256 where the eighth is 1, else less 128.
static inline uint32_t bfloats_of_int8(uint32_t x) {
  constexpr uint32_t OF_128 = 0x43004300, MINUS_1 = 0xbf80bf80;
  return multiply_add_bfloats((x & 0x00800080) | OF_128, MINUS_1, (x & 0x007f007f) | OF_128);
}

template <class T> static inline void widen_to_bfloats(uint32_t x, uint32_t& low, uint32_t& high);
template <> inline void widen_to_bfloats<float8_e4m3>(uint32_t x, uint32_t& low, uint32_t& high) {
  low = bfloats_of_float8(__byte_perm(x, 0, 0x1404)), high = bfloats_of_float8(__byte_perm(x, 0, 0x3424));
}
template <> inline void widen_to_bfloats<int8_t>(uint32_t x, uint32_t& low, uint32_t& high) {
  low = bfloats_of_int8(__byte_perm(x, 0, 0x4140)), high = bfloats_of_int8(__byte_perm(x, 0, 0x4342));
}
