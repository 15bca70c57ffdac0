// Element conversions: exhaustive over 16-bit patterns, rounding, clamping.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/element.hpp"
#include "reference/random.hpp"

namespace ejk::reference {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
};
constexpr Format formats[] = {{5, 10}, {8, 7}};

TEST(Element, Every16BitPatternSurvivesTheRoundTrip) {
  for (const auto& [exponent_bits, mantissa_bits] : formats)
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const double value = decode16(static_cast<std::uint16_t>(bits), exponent_bits, mantissa_bits);
      const std::uint16_t back = encode16(value, exponent_bits, mantissa_bits);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(decode16(back, exponent_bits, mantissa_bits))) << bits;
      } else {
        ASSERT_EQ(back, bits) << value;
      }
    }
}

TEST(Element, HalvesAgreeWithTheCompilersOwnType) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const auto own = static_cast<double>(std::bit_cast<_Float16>(pattern));
    const double value = load_element(DType::f16, &pattern);
    if (!std::isnan(own)) {
      ASSERT_EQ(value, own) << bits;
    }
  }
  Rng rng(1);
  for (int i = 0; i < 100000; ++i) {
    const auto value = static_cast<float>(rng.normal() * std::pow(10.0, static_cast<double>(rng.between(-9, 5))));
    std::uint16_t pattern = 0;
    store_element(DType::f16, &pattern, value);
    ASSERT_EQ(pattern, std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))) << value;
  }
}

TEST(Element, MidpointsGoToTheEvenNeighbour) {
  for (const auto& [exponent_bits, mantissa_bits] : formats)
    for (std::uint32_t bits = 0; bits < (((1u << exponent_bits) - 1) << mantissa_bits) - 1; ++bits) {
      const double low = decode16(static_cast<std::uint16_t>(bits), exponent_bits, mantissa_bits);
      const double high = decode16(static_cast<std::uint16_t>(bits + 1), exponent_bits, mantissa_bits);
      const double middle = (low + high) / 2;
      ASSERT_EQ(encode16(middle, exponent_bits, mantissa_bits), bits % 2 == 0 ? bits : bits + 1) << bits;
      ASSERT_EQ(encode16(std::nextafter(middle, low), exponent_bits, mantissa_bits), bits) << bits;
      ASSERT_EQ(encode16(-std::nextafter(middle, high), exponent_bits, mantissa_bits), (bits + 1) | 0x8000u) << bits;
    }
}

TEST(Element, TooLargeIsInfinityAndTheLimitIsExact) {
  EXPECT_EQ(encode16(65519.99, 5, 10), 0x7bff);
  EXPECT_EQ(encode16(65520, 5, 10), 0x7c00);
  EXPECT_EQ(encode16(-1e300, 8, 7), 0xff80);
  EXPECT_EQ(encode16(std::numeric_limits<double>::infinity(), 8, 7), 0x7f80);
  EXPECT_EQ(encode16(1e-300, 5, 10), 0);
  EXPECT_EQ(encode16(-0.0, 5, 10), 0x8000);
}

TEST(Element, DoubleToBf16RoundsOnce) {
  // Just above a bf16 midpoint, by less than a float can say: through float it would fall on the midpoint and go down to even.
  const double value = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(static_cast<float>(value), 1.0f + 0x1p-8f);
  EXPECT_EQ(encode16(value, 8, 7), 0x3f81);
}

TEST(Element, IntegersRoundAndClamp) {
  const auto stored = [](DType type, double value) {
    std::uint64_t memory = 0;
    store_element(type, &memory, value);
    return load_element(type, &memory);
  };
  EXPECT_EQ(stored(DType::i8, 1000), 127);
  EXPECT_EQ(stored(DType::i8, -1000), -128);
  EXPECT_EQ(stored(DType::u8, -1), 0);
  EXPECT_EQ(stored(DType::i32, -2147483648.0), -2147483648.0);
  EXPECT_EQ(stored(DType::i32, 1e12), 2147483647.0);
  EXPECT_EQ(stored(DType::i64, 1e30), static_cast<double>(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(stored(DType::i64, -7), -7);
  EXPECT_EQ(stored(DType::i32, 2.5), 2);
  EXPECT_EQ(stored(DType::i32, std::numeric_limits<double>::quiet_NaN()), 0);
  EXPECT_EQ(stored(DType::boolean, 0.25), 1);
}

TEST(Element, BytesOfE4M3AreThoseOfTheFormat) {
  // OCP 8-bit floating point, E4M3: largest 448 = S.1111.110, smallest normal 2^-6, smallest subnormal 2^-9.
  EXPECT_EQ(decode_e4m3(0x7e), 448);
  EXPECT_EQ(decode_e4m3(0x08), 0x1p-6);
  EXPECT_EQ(decode_e4m3(0x07), 7 * 0x1p-9);
  EXPECT_EQ(decode_e4m3(0x81), -0x1p-9);
  EXPECT_EQ(decode_e4m3(0x38), 1);
  EXPECT_EQ(decode_e4m3(0x45), 3.25);
  EXPECT_TRUE(std::signbit(decode_e4m3(0x80)) && decode_e4m3(0x80) == 0);
  for (const int bits : {0x7f, 0xff}) EXPECT_TRUE(std::isnan(decode_e4m3(static_cast<std::uint8_t>(bits))));
}

TEST(Element, E4M3RoundsToTheEvenNeighbourAndClamps) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const auto pattern = static_cast<std::uint8_t>(bits);
    const double low = decode_e4m3(pattern), high = decode_e4m3(static_cast<std::uint8_t>(bits + 1)), middle = (low + high) / 2;
    EXPECT_EQ(encode_e4m3(low), bits);
    EXPECT_EQ(encode_e4m3(-high), (bits + 1) | 0x80);
    EXPECT_EQ(encode_e4m3(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(encode_e4m3(std::nextafter(middle, low)), bits);
    EXPECT_EQ(encode_e4m3(-std::nextafter(middle, high)), (bits + 1) | 0x80);
  }
  EXPECT_EQ(encode_e4m3(464), 0x7e);
  EXPECT_EQ(encode_e4m3(1e30), 0x7e);
  EXPECT_EQ(encode_e4m3(-std::numeric_limits<double>::infinity()), 0xfe);
  EXPECT_EQ(encode_e4m3(std::numeric_limits<double>::quiet_NaN()) & 0x7f, 0x7f);
  EXPECT_EQ(encode_e4m3(-0.0), 0x80);
}

TEST(Element, PoisonOfFloatsIsNaN) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::f8_e4m3}) {
    const std::uint64_t pattern = poison_pattern(type);
    EXPECT_TRUE(std::isnan(load_element(type, &pattern))) << name_of(type);
  }
}

}  // namespace
}  // namespace ejk::reference
