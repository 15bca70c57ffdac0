// Elements of every type to and from double.
#pragma once
#include <cstdint>

#include "ejk/tensor.hpp"

namespace ejk::reference {

// The element at `address` (any alignment). Exact, but for i64 beyond 2^53.
double load_element(DType type, const void* address);

// Writes value at `address`. Floats: one rounding, to nearest even, overflow to infinity (f8_e4m3, which has none: clamped), NaN stays NaN.
// Integers: nearest, clamped to the type's range, NaN gives 0. Booleans: value != 0.
void store_element(DType type, void* address, double value);

// f8_e4m3: to nearest even, above 448 (and infinity) 448, which is its largest number; NaN is 0x7f and 0xff.
std::uint8_t encode_e4m3(double value);
double decode_e4m3(std::uint8_t bits);

// IEEE-like formats of 16 bits: f16 is (5, 10), bf16 is (8, 7) exponent and mantissa bits.
std::uint16_t encode16(double value, int exponent_bits, int mantissa_bits);
double decode16(std::uint16_t bits, int exponent_bits, int mantissa_bits);

// The pattern that marks memory nobody wrote: a NaN with a rare payload for floats, a rare number for integers.
std::uint64_t poison_pattern(DType type);

}  // namespace ejk::reference
