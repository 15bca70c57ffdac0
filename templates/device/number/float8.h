// Vocabulary of every backend: f8_e4m3, a byte of 4 exponent and 3 mantissa bits; no infinity, 0x7f and 0xff are NaN, largest 448.
// Needs the integer types of a backend's own header before it.
#pragma once

struct float8_e4m3 { uint8_t bits; };

// Exact. Exponent and mantissa go where those of a float are; a multiplication corrects the bias, for denormals too.
static inline float to_float(float8_e4m3 v) {
  const uint32_t magnitude = v.bits & 0x7f, sign = static_cast<uint32_t>(v.bits & 0x80) << 24;
  const float finite = __builtin_bit_cast(float, magnitude << 20) * 0x1p120f;
  return __builtin_bit_cast(float, (magnitude == 0x7f ? 0x7fc00000u : __builtin_bit_cast(uint32_t, finite)) | sign);
}
static inline float to_float(int8_t v) { return v; }
