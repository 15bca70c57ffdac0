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
    uint32_t wrong = 0;
    for (uint32_t mantissa = 0; mantissa < 1 << 11; ++mantissa) {
      const float x = std::bit_cast<float>(ONE | mantissa << 13);
      wrong += by(x) != x / scale;
    }
    ASSERT_EQ(wrong, 0) << scale;
  }
}

TEST(Quotients, AreSoAtEveryScale) {
  for (int exponent = -149; exponent <= 127; ++exponent)
    for (const float mantissa : {1.0f, 1.3f, 1.9999999f, -1.1f}) {
      const float scale = std::ldexp(mantissa, exponent);
      const Quotients by(scale);
      for (int size = -40; size <= 120; size += 7)
        for (int k = 128; k < 256; ++k) {
          const float x = std::ldexp(static_cast<float>(k - 384 * (k % 2)), size + exponent - 7);
          const float expected = x / scale;
          if (std::isinf(x) || (std::fpclassify(x) == FP_SUBNORMAL && std::fabs(x) < 0x1p-133f) || std::fabs(expected) >= 0x1p119f)
            continue;
          ASSERT_EQ(by(x), expected) << x << " / " << scale;
        }
    }
}

TEST(Quotients, OfWhatIsNoUsualNumber) {
  constexpr float INFINITE = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  for (const float scale : {0x1p-140f, 0x1.8p-59f, 0.05f, 1.0f, 3.0f, 0x1p100f}) {
    const Quotients by(scale);
    EXPECT_EQ(by(INFINITE), INFINITE);
    EXPECT_EQ(by(-INFINITE), -INFINITE);
    EXPECT_TRUE(std::isnan(by(nan)));
    EXPECT_EQ(by(0.0f), 0);
    EXPECT_TRUE(std::signbit(by(-0.0f)));
  }
  EXPECT_GT(Quotients(0x1p-59f)(1e38f), 1e37f);
  EXPECT_EQ(Quotients(0)(2), INFINITE);
  EXPECT_EQ(Quotients(0)(-2), -INFINITE);
  EXPECT_TRUE(std::isnan(Quotients(0)(0)));
  EXPECT_EQ(Quotients(INFINITE)(2), 0);
  EXPECT_TRUE(std::isnan(Quotients(INFINITE)(INFINITE)));
  EXPECT_TRUE(std::isnan(Quotients(nan)(2)));
}

}  // namespace
