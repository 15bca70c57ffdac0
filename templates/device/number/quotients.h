// Vocabulary of every backend: many quotients by one divisor, for numbers that 8-bit ones are made of (quantise.h).
//
//   Quotients by(scale); by(x)        x / scale where x has at most 11 bits, as 16-bit types have, and by.is_usual; past 4096 only about that much
//
// Needs before it fused_multiply_add(a, b, c): a b + c, rounded once.
#pragma once

// By the reciprocal, with one correction: that rounds as a division does.
struct Quotients {
  float scale, reciprocal;
  bool is_usual;  // no quotient of an 8-bit number's size overflows on the way, nor has a rest that is a denormal
  explicit Quotients(float by) : scale(by), reciprocal(1 / by), is_usual(false) {
    const uint32_t exponent = __builtin_bit_cast(uint32_t, by) >> 23 & 0xff;
    is_usual = exponent > 127 - 60 && exponent < 127 + 60;
  }
  float operator()(float x) const {
    const float first = x * reciprocal, corrected = fused_multiply_add(fused_multiply_add(-first, scale, x), reciprocal, first);
    return first < 4096 && first > -4096 ? corrected : first;  // else the correction may be infinite, or no number
  }
};
