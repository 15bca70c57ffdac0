// GPU vocabulary: 8-bit numbers (float8_e4m3, int8_t) widened, exactly, to pairs of IEEE binary16 (half).
//
//   widen_bytes<T>(x, low, high)      low: bytes 0 and 1 of x as two halves; high: bytes 2 and 3
//   swap_middle_bytes(x)              bytes 0, 2, 1, 3
#pragma once
#include "device/gpu.h"
#include "device/number/float8.h"

template <class T> static inline void widen_bytes(uint32_t x, uint32_t& low, uint32_t& high);
$if arch.platform == 'cuda'
static inline uint32_t swap_middle_bytes(uint32_t x) { return __byte_perm(x, 0, 0x3120); }

static inline uint32_t multiply_add_halves(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}

// Two e4m3 numbers, in the upper bytes of the halves of x.
static inline uint32_t widen_upper_bytes(uint32_t x) {
  const uint32_t shifted = (x & 0x80008000) | (x >> 1 & 0x3f803f80);
  // 480, which would be the number of a NaN's bits, times 140 is infinite, and 448 times 140 is not; infinity times 0 is NaN.
  constexpr uint32_t TIMES_256 = 0x5c005c00, TIMES_140 = 0x58605860, MINUS_0 = 0x80008000;
  const uint32_t perhaps_infinite = multiply_add_halves(multiply_add_halves(shifted, TIMES_256, MINUS_0), TIMES_140, MINUS_0);
  return multiply_add_halves(shifted, TIMES_256, multiply_add_halves(perhaps_infinite, 0, MINUS_0));
}

template <> inline void widen_bytes<float8_e4m3>(uint32_t x, uint32_t& low, uint32_t& high) {
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high) : "r"(x));
#else
  low = widen_upper_bytes(__byte_perm(x, 0, 0x1404));
  high = widen_upper_bytes(__byte_perm(x, 0, 0x3424));
#endif
}

// 0x6400 + u is the half 1024 + u, for a byte u.
template <> inline void widen_bytes<int8_t>(uint32_t x, uint32_t& low, uint32_t& high) {
  x ^= 0x80808080;
  constexpr uint32_t ONE = 0x3c003c00, MINUS_1152 = 0xe480e480;
  low = multiply_add_halves(__byte_perm(x, 0x64, 0x4140), ONE, MINUS_1152);
  high = multiply_add_halves(__byte_perm(x, 0x64, 0x4342), ONE, MINUS_1152);
}
$elif arch.platform == 'simt'
static inline uint32_t swap_middle_bytes(uint32_t x) { return (x & 0xff0000ff) | (x >> 8 & 0xff00) | (x << 8 & 0xff0000); }

template <class T> static inline void widen_bytes(uint32_t x, uint32_t& low, uint32_t& high) {
  const auto byte = [&](int i) { return to_float(bits_as<T>(static_cast<uint8_t>(x >> 8 * i))); };
  low = pack_pair<half>(byte(0), byte(1));
  high = pack_pair<half>(byte(2), byte(3));
}
$end
