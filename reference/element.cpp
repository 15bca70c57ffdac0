// Conversions between element types and double, and the poison patterns.
#include "reference/element.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ejk::reference {
namespace {

template <class T>
T read(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

template <class T>
void write(void* address, T value) {
  std::memcpy(address, &value, sizeof value);
}

template <class T>
T clamp_to(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // The bounds of i64 are not both doubles: compare against powers of two, which are.
  if (rounded >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
  if (rounded < static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(rounded);
}

}  // namespace

std::uint16_t encode16(double value, int exponent_bits, int mantissa_bits) {
  const std::uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | (1u << (mantissa_bits - 1)));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  if (value == 0) return static_cast<std::uint16_t>(sign);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent - 1), 2^exponent)
  const bool subnormal = exponent - 1 < 1 - bias;
  const int last_place = (subnormal ? 1 - bias : exponent - 1) - mantissa_bits;
  const double places = std::nearbyint(std::ldexp(std::fabs(value), -last_place));  // to nearest even, the default rounding mode
  std::int64_t bits = static_cast<std::int64_t>(places);
  // A mantissa that rounds up to the next power of two carries into the exponent by itself.
  if (!subnormal) bits += (static_cast<std::int64_t>(exponent - 1 + bias) << mantissa_bits) - (std::int64_t{1} << mantissa_bits);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::min<std::int64_t>(bits, infinity)));
}

double decode16(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double magnitude = 0;
  if (exponent == (1 << exponent_bits) - 1)
    magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  else
    magnitude = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return std::copysign(magnitude, bits & 0x8000u ? -1.0 : 1.0);
}

std::uint8_t encode_e4m3(double value) {
  constexpr int bias = 7, mantissa_bits = 3;
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7f);
  if (value == 0) return static_cast<std::uint8_t>(sign);
  int exponent = 0;
  std::frexp(value, &exponent);
  if (std::isinf(value) || exponent > 9) return static_cast<std::uint8_t>(sign | 0x7e);  // 512 and more
  const bool subnormal = exponent - 1 < 1 - bias;
  const int last_place = (subnormal ? 1 - bias : exponent - 1) - mantissa_bits;
  int bits = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), -last_place)));
  if (!subnormal) bits += (exponent - 2 + bias) << mantissa_bits;  // the hidden bit counts as one more
  return static_cast<std::uint8_t>(sign | std::min(bits, 0x7e));
}

double decode_e4m3(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  if ((bits & 0x7f) == 0x7f) magnitude = std::numeric_limits<double>::quiet_NaN();
  return std::copysign(magnitude, bits & 0x80 ? -1.0 : 1.0);
}

double load_element(DType type, const void* address) {
  switch (type) {
    case DType::f32:
      return read<float>(address);
    case DType::f16:
      return decode16(read<std::uint16_t>(address), 5, 10);
    case DType::bf16:
      return std::bit_cast<float>(std::uint32_t{read<std::uint16_t>(address)} << 16);
    case DType::f64:
      return read<double>(address);
    case DType::i8:
      return read<std::int8_t>(address);
    case DType::i32:
      return read<std::int32_t>(address);
    case DType::i64:
      return static_cast<double>(read<std::int64_t>(address));
    case DType::u8:
      return read<std::uint8_t>(address);
    case DType::boolean:
      return read<std::uint8_t>(address) != 0;
    case DType::f8_e4m3:
      return decode_e4m3(read<std::uint8_t>(address));
  }
  return 0;
}

void store_element(DType type, void* address, double value) {
  switch (type) {
    case DType::f32:
      return write(address, static_cast<float>(value));
    case DType::f16:
      return write(address, encode16(value, 5, 10));
    case DType::bf16:
      return write(address, encode16(value, 8, 7));
    case DType::f64:
      return write(address, value);
    case DType::i8:
      return write(address, clamp_to<std::int8_t>(value));
    case DType::i32:
      return write(address, clamp_to<std::int32_t>(value));
    case DType::i64:
      return write(address, clamp_to<std::int64_t>(value));
    case DType::u8:
      return write(address, clamp_to<std::uint8_t>(value));
    case DType::boolean:
      return write(address, static_cast<std::uint8_t>(value != 0));
    case DType::f8_e4m3:
      return write(address, encode_e4m3(value));
  }
}

std::uint64_t poison_pattern(DType type) {
  switch (type) {
    case DType::f32:
      return 0x7fc5dead;
    case DType::f16:
      return 0x7e5d;
    case DType::bf16:
      return 0x7fdd;
    case DType::f64:
      return 0x7ffc5deaddeaddea;
    case DType::i8:
      return 0xa5;
    case DType::i32:
      return 0xa5dead5a;
    case DType::i64:
      return 0xa5deaddeaddead5a;
    case DType::u8:
      return 0xa5;
    case DType::boolean:
      return 0xa5;  // neither 0 nor 1
    case DType::f8_e4m3:
      return 0xff;
  }
  return 0;
}

}  // namespace ejk::reference
