// Elements of matrices as tensor cores read them, made floats (or words): sixteen words of 32 bits at a time.
#pragma once
#include <cstdint>
#include <cstring>

#include "emulator/ptx/matrix/matrix_product.hpp"

namespace ejk::ptx::matrix {

// Everything in this file and matrix_arithmetic.hpp is inlined into functions for one kind of CPU, whose vectors have so many bytes. None
// is passed from function to function, whatever the compiler says of that.
#define EJK_PTX_INLINE [[gnu::always_inline]] inline
#pragma GCC diagnostic ignored "-Wpsabi"

template <int BYTES>
struct Vectors {
  using Words [[gnu::vector_size(BYTES)]] = std::uint32_t;
  using Integers [[gnu::vector_size(BYTES)]] = std::int32_t;
  using Floats [[gnu::vector_size(BYTES)]] = float;
};
template <int BYTES>
using Words = typename Vectors<BYTES>::Words;

template <class Vector>
EJK_PTX_INLINE Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}
template <class Vector>
EJK_PTX_INLINE void store(void* to, const Vector& vector) {
  std::memcpy(to, &vector, sizeof vector);
}

// Bits of a float with so many bits of exponent and mantissa in the low bits of each word, as those of the float32 of the same value.
// e4m3 has no infinity, and one NaN a sign.
template <int EXPONENT, int MANTISSA, int BYTES>
EJK_PTX_INLINE Words<BYTES> widened(const Words<BYTES>& bits) {
  using Bits = Words<BYTES>;
  using Floats = typename Vectors<BYTES>::Floats;
  constexpr std::uint32_t magnitudes = (1u << (EXPONENT + MANTISSA)) - 1, bias = (1u << (EXPONENT - 1)) - 1;
  constexpr std::uint32_t infinity = EXPONENT == 4 ? magnitudes : ((1u << EXPONENT) - 1) << MANTISSA;
  constexpr float unit = EXPONENT == 5 ? (MANTISSA == 10 ? 0x1p-24f : 0x1p-16f) : 0x1p-9f;  // of subnormal numbers
  static_assert(EXPONENT == 5 ? MANTISSA == 10 || MANTISSA == 2 : EXPONENT == 4 && MANTISSA == 3);
  const Bits magnitude = bits & magnitudes, sign = (bits & (magnitudes + 1)) << (31 - EXPONENT - MANTISSA);
  const Bits normal = (magnitude << (23 - MANTISSA)) + ((127 - bias) << 23);
  const Floats tiny = __builtin_convertvector(reinterpret_cast<typename Vectors<BYTES>::Integers>(magnitude), Floats) * unit;
  const Bits is_tiny = reinterpret_cast<Bits>(magnitude < (1u << MANTISSA)), is_special = reinterpret_cast<Bits>(magnitude >= infinity);
  const Bits special = EXPONENT == 4 ? normal | 0x7fc00000u : normal | 0x7f800000u;
  const Bits finite = (is_tiny & reinterpret_cast<Bits>(tiny)) | (~is_tiny & normal);
  return (is_special & special) | (~is_special & finite) | sign;
}

// Element `at` (0 is the lowest) of each word: bits of a float32, or an integer of 32 bits.
template <FactorType FORMAT, int BYTES>
EJK_PTX_INLINE Words<BYTES> element_of(const Words<BYTES>& words, int at) {
  using Integers = typename Vectors<BYTES>::Integers;
  if constexpr (FORMAT == FactorType::bf16) return at == 0 ? words << 16 : words & 0xffff0000u;
  if constexpr (FORMAT == FactorType::f16) return widened<5, 10, BYTES>(at == 0 ? words & 0xffffu : words >> 16);
  if constexpr (FORMAT == FactorType::tf32) return words & 0xffffe000u;  // the tensor cores do not read the bits below
  if constexpr (FORMAT == FactorType::e4m3) return widened<4, 3, BYTES>((words >> (8 * at)) & 0xffu);
  if constexpr (FORMAT == FactorType::e5m2) return widened<5, 2, BYTES>((words >> (8 * at)) & 0xffu);
  if constexpr (FORMAT == FactorType::s8) return reinterpret_cast<Words<BYTES>>(reinterpret_cast<Integers>(words << (24 - 8 * at)) >> 24);
  if constexpr (FORMAT == FactorType::u8) return (words >> (8 * at)) & 0xffu;
}

}  // namespace ejk::ptx::matrix
