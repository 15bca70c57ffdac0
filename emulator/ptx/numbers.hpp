// Numbers of few bits (f16, bf16, tf32, e4m3, e5m2) and rounding: to the nearest in loops that the compiler vectorises, else in general.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "emulator/numbers.hpp"

namespace ejk::ptx {

// nearest: ties to even; away: to the nearest, ties away from zero.
enum class Rounding : std::uint8_t { nearest, zero, down, up, away };

// A binary format. Numbers from 2^least_exponent on are normal. Codes are those of magnitudes; e4m3 has no infinity: its NaN stands there.
struct Format {
  int bits, mantissa, least_exponent;
  std::uint64_t infinity, greatest, nan;
};
inline constexpr Format f64_format{64, 52, -1022, 0x7ffull << 52, (0x7ffull << 52) - 1, 0x7fffffffffffffffull};
inline constexpr Format f32_format{32, 23, -126, 0x7f800000, 0x7f7fffff, 0x7fffffff};
inline constexpr Format f16_format{16, 10, -14, 0x7c00, 0x7bff, 0x7fff};
inline constexpr Format bf16_format{16, 7, -126, 0x7f80, 0x7f7f, 0x7fff};
inline constexpr Format tf32_format{19, 10, -126, 0x3fc00, 0x3fbff, 0x3ffff};  // the upper bits of an f32
inline constexpr Format e4m3_format{8, 3, -6, 0x7f, 0x7e, 0x7f};
inline constexpr Format e5m2_format{8, 2, -14, 0x7c, 0x7b, 0x7f};

// The code of the magnitude significand * 2^exponent. `negative` is its number's sign, on which rounding down and up depend. What is too
// great becomes infinity, or the greatest number if `saturate` or if rounding goes towards zero.
constexpr std::uint64_t encode_magnitude(const Format& format, bool negative, std::uint64_t significand, int exponent, Rounding rounding,
                                         bool saturate) {
  if (significand == 0) return 0;
  const int zeros = std::countl_zero(significand);
  significand <<= zeros;
  const int high = exponent + 63 - zeros;  // the number is in [2^high, 2^(high + 1))
  const int place = std::max(high, format.least_exponent), cut = 63 - format.mantissa + (place - high);
  std::uint64_t kept = 0, rest = significand, half = std::uint64_t{1} << 63;
  if (cut > 64) rest = 1;  // less than half of the least number
  if (cut < 64) {
    kept = significand >> cut;
    rest = cut == 0 ? 0 : significand << (64 - cut);
  }
  const bool towards_zero =
      rounding == Rounding::zero || (rounding == Rounding::down && !negative) || (rounding == Rounding::up && negative);
  const bool nearest_up = rounding == Rounding::nearest ? rest > half || (rest == half && kept % 2 != 0) : rest >= half;
  const bool outwards = rounding == Rounding::down || rounding == Rounding::up;
  const bool more = rest != 0 && !towards_zero && (outwards || nearest_up);
  // The leading bit of a normal number adds one to the exponent's field, and so does a carry.
  const std::uint64_t code = (static_cast<std::uint64_t>(place - format.least_exponent) << format.mantissa) + kept + more;
  if (code < format.infinity) return code;
  return saturate || towards_zero ? format.greatest : format.infinity;
}

constexpr std::uint64_t encode(const Format& format, double value, Rounding rounding = Rounding::nearest, bool saturate = false) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const bool negative = bits >> 63;
  const int field = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1), sign = static_cast<std::uint64_t>(negative) << (format.bits - 1);
  if (field == 0x7ff && fraction) return format.nan;
  if (field == 0x7ff) return sign | (saturate ? format.greatest : format.infinity);
  const std::uint64_t significand = field ? fraction | std::uint64_t{1} << 52 : fraction;
  return sign | encode_magnitude(format, negative, significand, std::max(field, 1) - 1075, rounding, saturate);
}

inline float from_f16(std::uint16_t bits) { return simt::half_value(bits); }
inline float from_bf16(std::uint16_t bits) { return simt::bfloat16_value(bits); }
inline float from_e5m2(std::uint8_t bits) { return simt::half_value(static_cast<std::uint16_t>(bits << 8)); }
inline float from_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
  constexpr float scale = 0x1p120f;
  if (magnitude == 0x7f) return std::bit_cast<float>(0x7fffffffu);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 20) * scale));
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<std::uint16_t>(value != value ? 0x7fffu : rounded);
}

// A normal f16's ulp is 2^-10 of its power of two: adding 2^15 times that power (of 2^-14 at least) rounds the float to it.
inline std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  // 65520 and more becomes infinity: times 2^112 it overflows.
  const float scaled = (std::bit_cast<float>(magnitude) * 0x1p112f) * 0x1p-110f;
  const std::uint32_t power = std::max(bits << 1 & 0xff000000u, 0x71000000u);
  const auto sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>((power >> 1) + 0x07800000u) + scaled);
  const std::uint32_t code = (sum >> 13 & 0x7c00u) + (sum & 0xfffu);
  return static_cast<std::uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : sign | code);
}

inline float flushed(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

inline float saturated(float value) {
  const float positive = value > 0.0f ? value : 0.0f;  // NaN gives 0
  return positive < 1.0f ? positive : 1.0f;
}
inline double saturated(double value) { return value > 0.0 ? std::min(value, 1.0) : 0.0; }

// A number and what was lost in rounding it (its sign alone is of use where it is not exact).
struct Rounded {
  double value, lost;
};
inline Rounded exact_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

// `nearest` rounded to the nearest lost `lost`: what another rounding would have made of it. Infinity's neighbour is the greatest number.
inline float redirected(float nearest, double lost, Rounding rounding) {
  if (lost == 0 || lost != lost || rounding == Rounding::nearest) return nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool negative = bits >> 31, outwards = (lost < 0) == negative;
  const bool wants_outwards = rounding == Rounding::down ? negative : rounding == Rounding::up ? !negative : false;
  return std::bit_cast<float>(outwards == wants_outwards ? bits + (outwards ? 1u : ~0u) : bits);
}
inline float rounded_float(Rounded exact, Rounding rounding) {
  const auto nearest = static_cast<float>(exact.value);
  if (std::isinf(exact.value)) return nearest;
  return redirected(nearest, (exact.value - static_cast<double>(nearest)) + exact.lost, rounding);
}

// a * b + c, of numbers whose products are exact in double, as a float that rounds once more to fewer bits as the exact number would: an
// inexact one is made odd.
inline float fused_to_odd(float a, float b, float c) {
  const Rounded sum = exact_sum(static_cast<double>(a) * b, c);
  const auto nearest = static_cast<float>(sum.value);
  const double lost = (sum.value - static_cast<double>(nearest)) + sum.lost;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool inexact = lost > 0 || lost < 0, finite = (bits & 0x7f800000u) != 0x7f800000u;
  const std::uint32_t odd = bits % 2 ? bits : bits + ((lost < 0) == (bits >> 31 != 0) ? 1u : ~0u);
  return std::bit_cast<float>(inexact && finite ? odd : bits);
}

}  // namespace ejk::ptx
