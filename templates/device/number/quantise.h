// Vocabulary of every backend: numbers as a cache stores them. To nearest even; 8-bit ones saturate, -128 to 127 and -448 to 448.
//
//   cached<T>(x)   an element of type T; a NaN is 0 as int8_t
//   as_cached<T>(x, scale)   what is read of x / scale once it is stored, times the scale
// Needs a backend's own header before it.
#pragma once
#include "device/number/float8.h"

template <class T> struct CachedNumber {
  static T of(float x) { return from_float<T>(x); }
};

template <> struct CachedNumber<int8_t> {
  static int8_t of(float x) {
    const float inside = x >= 127 ? 127.0f : x <= -128 ? -128.0f : x == x ? x : 0.0f;
    return static_cast<int8_t>(__builtin_bit_cast(int32_t, inside + 12582912.0f) - 0x4b400000);  // 1.5 * 2^23: the sum has no fraction left
  }
};

template <> struct CachedNumber<float8_e4m3> {
  static float8_e4m3 of(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    uint32_t number = 0x7e;
    if (magnitude > 0x7f800000)
      number = 0x7f;
    else if (magnitude < 0x3c800000)  // below 2^-6: multiples of 2^-9, which is the last place of numbers from 2^14 on
      number = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 16384.0f) & 15;
    else if (magnitude < 0x43e00000)
      number = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
    return {static_cast<uint8_t>(number | sign)};
  }
};

template <class T> static inline T cached(float x) { return CachedNumber<T>::of(x); }
template <class T> static inline float as_cached(float x, float scale) { return to_float(cached<T>(x / scale)) * scale; }
