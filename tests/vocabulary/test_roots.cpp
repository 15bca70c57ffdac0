// The CPU vocabulary's square roots: of every f32 mantissa and of every element of 16 bits, against long doubles.
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu.h"
#include "device/number/roots_cpu.h"
#include "device/number/vector.h"

namespace roots {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

float true_root(float x) { return static_cast<float>(std::sqrt(static_cast<long double>(x))); }
float true_reciprocal(float x) { return static_cast<float>(1 / std::sqrt(static_cast<long double>(x))); }

TEST(Roots, of_every_mantissa_are_to_nearest) {
  for (float x = 1; x < 4; x = std::nextafter(x, 4.0f)) {  // beyond that the exponent alone differs
    ASSERT_EQ(sqrt_of(x), true_root(x)) << x;
    ASSERT_EQ(rsqrt_of(x), true_reciprocal(x)) << x;
  }
}

TEST(Roots, are_to_nearest_at_all_magnitudes) {
  for (double x = 1e-45; x < 3.4e38; x *= 1.0137) {
    const auto f = static_cast<float>(x);
    EXPECT_EQ(sqrt_of(f), true_root(f)) << f;
    EXPECT_EQ(rsqrt_of(f), true_reciprocal(f)) << f;
  }
}

TEST(Roots, of_vectors_are_those_of_their_lanes) {
  for (double x = 1e-45; x < 1e37; x *= 1.37) {
    Floats v;
    for (int lane = 0; lane < LANES; ++lane) v[lane] = static_cast<float>(x * (lane + 1));
    const Floats roots = sqrt_of(v), reciprocals = rsqrt_of(v);
    for (int lane = 0; lane < LANES; ++lane) {
      EXPECT_EQ(roots[lane], sqrt_of(v[lane]));
      EXPECT_EQ(reciprocals[lane], rsqrt_of(v[lane]));
    }
  }
}

TEST(Roots, know_zero_infinity_and_nan) {
  const auto is = [](float x, float root, float reciprocal) {
    EXPECT_EQ(sqrt_of(x), root);
    EXPECT_EQ(std::signbit(sqrt_of(x)), std::signbit(root));
    EXPECT_EQ(rsqrt_of(x), reciprocal);
    EXPECT_EQ(rsqrt_of(splat(x))[LANES - 1], reciprocal);
  };
  is(0, 0, inf);
  is(-0.0f, -0.0f, -inf);
  is(inf, inf, 0);
  for (const float x : {nan, -1.0f, -inf, -1e-45f}) {
    EXPECT_TRUE(std::isnan(sqrt_of(x))) << x;
    EXPECT_TRUE(std::isnan(rsqrt_of(x))) << x;
    EXPECT_TRUE(std::isnan(sqrt_of(splat(x))[0])) << x;
  }
}

// Every element of the type: no other is nearer to the truth. `next` gives the neighbours, by their bits.
template <class T>
void expect_nearest_of_all() {
  for (int bits = 0; bits < 0x8000; ++bits) {
    const auto of_bits = [](int pattern) {
      const auto narrow = static_cast<std::uint16_t>(pattern);
      T element;
      std::memcpy(&element, &narrow, sizeof narrow);
      return element;
    };
    const T x = of_bits(bits);
    const double value = to_float(x);
    if (!(value > 0) || std::isinf(value)) continue;
    const auto expect_nearest = [&](T found, double truth) {
      std::uint16_t at = 0;
      std::memcpy(&at, &found, sizeof at);
      const double error = std::abs(to_float(found) - truth);
      for (const int other : {at - 1, at + 1}) ASSERT_LE(error, std::abs(to_float(of_bits(other)) - truth)) << value;
    };
    expect_nearest(sqrt_of(x), std::sqrt(value));
    expect_nearest(rsqrt_of(x), 1 / std::sqrt(value));
  }
}

TEST(Roots, of_f16_are_to_nearest) { expect_nearest_of_all<half>(); }
TEST(Roots, of_bf16_are_to_nearest) { expect_nearest_of_all<bfloat16>(); }

}  // namespace
}  // namespace roots
