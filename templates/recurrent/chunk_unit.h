// GPU vocabulary of the chunked recurrence of halves: powers of two that keep numbers within a half's range; chunk_units.h says of what. Part of a
// template of f16.
#pragma once

constexpr uint32_t LEAST_EXPONENT = 67, LEAST_SUMMAND = 97;  // 2^-60; 2^-30, where sums that are there already are multiplied by units, too

// of: makes numbers up to `largest` at most 2^14. Numbers of a lesser exponent are taken for ones of that size.
struct Unit {
  float of, inverse;
  explicit Unit(float largest, uint32_t least = LEAST_EXPONENT) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, largest) << 1 >> 24;  // without its sign: -0 is 0
    const uint32_t exponent = bits < least ? least : bits > 240 ? 240 : bits;
    of = __builtin_bit_cast(float, (267 - exponent) << 23);
    inverse = __builtin_bit_cast(float, (exponent - 13) << 23);
  }
};
static inline float larger_size(float largest, float x) { return larger_of(largest, larger_of(x, -x)); }
static inline float largest_of_warp(float x) {
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) x = larger_of(x, shuffle_xor(x, mask));
  return x;
}
// Of a warp's sums.
template <int N> static inline Unit common_unit(const float (&sums)[N][4]) {
  float largest = 0;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = larger_size(largest, sums[n][i]);
  return Unit(largest_of_warp(largest));
}
