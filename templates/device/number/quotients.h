// Vocabulary of every backend: many quotients by one divisor.
//
//   Quotients by(scale); by(x)   x / scale, for x of at most 11 bits, as 16-bit types have; between 2^-40 and 2^120 rounded as a division's, and past these about as large
//
// Needs before it fused_multiply_add(a, b, c): a b + c, rounded once.
#pragma once

// By the reciprocal, with one correction: that rounds as a division does.
struct Quotients {
  float factor, divisor, reciprocal;  // factor: of both numbers, so that nothing overflows on the way, and no rest is a denormal
  explicit Quotients(float scale) {
    const uint32_t exponent = __builtin_bit_cast(uint32_t, scale) >> 23 & 0xff;
    factor = exponent < 127 - 60 ? 0x1p64f : exponent > 127 + 60 ? 0x1p-64f : 1;
    divisor = scale * factor, reciprocal = 1 / divisor;
  }
  float operator()(float x) const {
    const float y = x * factor, first = y * reciprocal, corrected = fused_multiply_add(fused_multiply_add(-first, divisor, y), reciprocal, first);
    const uint32_t size = 2 * __builtin_bit_cast(uint32_t, first) - 1;  // without the sign; that of 0 is above all others
    return size < 2 * __builtin_bit_cast(uint32_t, 0x1p120f) - 1 ? corrected : first;  // else the correction may be infinite, no number, or lose a sign
  }
};
