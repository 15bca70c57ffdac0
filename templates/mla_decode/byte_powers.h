// Powers of two by which mla_decode on bytes brings queries, weights and scales into a narrower type's range. A part of the forms that turn bytes into halves in registers.
#pragma once

static inline float size_of(float x) { return larger_of(x, -x); }
static inline float power_of_two(int exponent) { return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23); }
// Of a number that is not negative: the exponent of its first digit, from -`most` to `most`.
static inline int exponent_of(float x, int most) {
  const int e = static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 23) - 127;
  return e < -most ? -most : e > most ? most : e;
}
