// GPU vocabulary: packs of 16-bit numbers over a scale as a cache stores them, the numbers of quantise.h in fewer instructions.
//
//   cached_pack<T>(x, scale)   a pack of x / scale as T
#pragma once
#include "device/number/quantise.h"

$if arch.platform == 'cuda'
static inline float fused_multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
$else
static inline float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
$end
#include "device/number/quotients.h"

template <class T> static inline void store_cached_pair(T* to, float a, float b) { to[0] = cached<T>(a), to[1] = cached<T>(b); }
$if arch.platform == 'cuda'
#if __CUDA_ARCH__ >= 890
template <> inline void store_cached_pair<float8_e4m3>(float8_e4m3* to, float a, float b) {
  uint16_t bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(bits) : "f"(a), "f"(b));
  to[0].bits = static_cast<uint8_t>(bits), to[1].bits = static_cast<uint8_t>(bits >> 8);
}
#endif
template <> inline void store_cached_pair<int8_t>(int8_t* to, float a, float b) {
  const float x[2] = {a == a ? a : 0, b == b ? b : 0};
#pragma unroll
  for (int i = 0; i < 2; ++i)  // 1.5 * 2^23: the sum has no fraction left, and its lowest byte is the number
    to[i] = static_cast<int8_t>(__builtin_bit_cast(uint32_t, fminf(fmaxf(x[i], -128.0f), 127.0f) + 12582912.0f));
}
$end

template <class T, class From, int N> static inline Pack<T, N> cached_pack(const Pack<From, N>& x, float scale) {
  Pack<T, N> y;
  if constexpr (sizeof(From) == 2 && N % 2 == 0) {
    const Quotients by(scale);
#pragma unroll
    for (int k = 0; k < N; k += 2) store_cached_pair<T>(y.at + k, by(to_float(x.at[k])), by(to_float(x.at[k + 1])));
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) y.at[k] = cached<T>(to_float(x.at[k]) / scale);
  }
  return y;
}
