// Quotients by one divisor (templates/device/number/quotients.h): those of a division, to the last bit.
#include <gtest/gtest.h>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
#include "device/number/quotients.h"

constexpr uint32_t ONE = 0x3f800000;

// Exponents change nothing but where something overflows. Of f16's mantissas and of a divisor's some.
TEST(Quotients, AreThoseOfADivision) {
  for (uint32_t divisor = 0; divisor < 1 << 23; divisor += 1019) {
    const float scale = std::bit_cast<float>(ONE | divisor);
    const Quotients by(scale);
    ASSERT_TRUE(by.is_usual);
    uint32_t wrong = 0;
    for (uint32_t mantissa = 0; mantissa < 1 << 11; ++mantissa) {
      const float x = std::bit_cast<float>(ONE | mantissa << 13);
      wrong += by(x) != x / scale;
    }
    ASSERT_EQ(wrong, 0) << scale;
  }
}

TEST(Quotients, OfTheSizeOf8BitNumbersAreThoseAtEveryUsualScale) {
  for (int exponent = -59; exponent <= 59; ++exponent)
    for (const float mantissa : {1.0f, 1.3f, 1.9999999f}) {
      const float scale = std::ldexp(mantissa, exponent);
      const Quotients by(scale);
      ASSERT_TRUE(by.is_usual) << scale;
      for (int size = -12; size <= 11; ++size)
        for (int k = 128; k < 256; ++k) {
          const float x = std::ldexp(static_cast<float>(k - 384 * (k % 2)), size + exponent - 7);
          ASSERT_EQ(by(x), x / scale) << x << " / " << scale;
        }
    }
}

TEST(Quotients, PastThemAreStillPastThem) {
  constexpr float INFINITE = std::numeric_limits<float>::infinity();
  for (const float scale : {std::ldexp(1.5f, -59), 0.05f, 1.0f, 3.0f}) {
    const Quotients by(scale);
    for (const float x : {5000 * scale, 1e38f, INFINITE}) {
      EXPECT_GT(by(x), 4000) << x << " / " << scale;
      EXPECT_LT(by(-x), -4000) << x << " / " << scale;
    }
    EXPECT_TRUE(std::isnan(by(std::nanf(""))));
    EXPECT_EQ(by(0.0f), 0);
  }
  for (const float scale : {std::ldexp(1.0f, -60), std::ldexp(1.0f, 60), 0.0f, INFINITE, std::nanf("")}) EXPECT_FALSE(Quotients(scale).is_usual) << scale;
}

}  // namespace
