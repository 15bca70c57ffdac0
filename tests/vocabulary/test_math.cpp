// The CPU vocabulary's vector math, stores and transposes, against the C library and against rules of rounding.
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu.h"
#include "device/number/math.h"
#include "device/number/narrow.h"
#include "device/number/no_denormals.h"

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

TEST(Exp2, is_within_five_in_ten_million_of_the_truth) {
  for (float x = -125.9f; x < 126; x += 0.0371f) EXPECT_NEAR(exp2_of(splat(x))[0] / std::exp2(static_cast<double>(x)), 1, 6e-7) << x;
}

TEST(Exp2, is_exactly_zero_below_the_normal_range_and_passes_nan_on) {
  EXPECT_EQ(exp2_of(splat(-inf))[0], 0);
  EXPECT_EQ(exp2_of(splat(-126.5f))[0], 0);
  EXPECT_EQ(exp2_of(splat(-3e38f))[0], 0);
  EXPECT_EQ(exp2_of(splat(0.0f))[0], 1);
  EXPECT_TRUE(std::isnan(exp2_of(splat(nan))[0]));
}

TEST(Log, is_close_to_the_truth_over_all_magnitudes) {
  for (double x = 1e-44; x < 3e38; x *= 1.37) {
    const float f = static_cast<float>(x);
    if (f == 0) continue;
    const double truth = std::log(static_cast<double>(f));
    EXPECT_NEAR(log_of(splat(f))[0], truth, 3e-7 * std::max(1.0, std::abs(truth))) << f;
  }
}

TEST(Log, knows_zero_infinity_and_nan) {
  EXPECT_EQ(log_of(splat(0.0f))[0], -inf);
  EXPECT_EQ(log_of(splat(inf))[0], inf);
  EXPECT_TRUE(std::isnan(log_of(splat(nan))[0]));
}

TEST(Tanh, is_close_to_the_truth_also_near_zero) {
  for (float x = 1e-6f; x < 30; x *= 1.05f)
    for (const float signed_x : {x, -x})
      EXPECT_NEAR(tanh_of(splat(signed_x))[0] / std::tanh(static_cast<double>(signed_x)), 1, 1e-6) << signed_x;
  EXPECT_EQ(tanh_of(splat(inf))[0], 1);
  EXPECT_EQ(tanh_of(splat(-inf))[0], -1);
  EXPECT_EQ(tanh_of(splat(0.0f))[0], 0);
  EXPECT_TRUE(std::isnan(tanh_of(splat(nan))[0]));
}

TEST(Vector, transpose_swaps_rows_and_columns) {
  Floats rows[LANES];
  for (int i = 0; i < LANES; ++i)
    for (int j = 0; j < LANES; ++j) rows[i][j] = static_cast<float>(100 * i + j);
  transpose(rows);
  for (int i = 0; i < LANES; ++i)
    for (int j = 0; j < LANES; ++j) EXPECT_EQ(rows[i][j], static_cast<float>(100 * j + i));
}

TEST(Vector, any_sees_one_lane) {
  for (int lane = 0; lane < LANES; ++lane) {
    Floats v = {};
    EXPECT_FALSE(any(v > splat(0.5f)));
    v[lane] = 1;
    EXPECT_TRUE(any(v > splat(0.5f)));
  }
}

TEST(Vector, partial_loads_and_stores_touch_no_more_than_asked) {
  for (int count = 0; count <= LANES; ++count) {
    float from[LANES], to[LANES];
    for (int i = 0; i < LANES; ++i) from[i] = static_cast<float>(i + 1), to[i] = -1;
    const Floats v = load_some(from, count);
    store_some(to, v, count);
    for (int i = 0; i < LANES; ++i) {
      EXPECT_EQ(v[i], i < count ? static_cast<float>(i + 1) : 0.0f);
      EXPECT_EQ(to[i], i < count ? static_cast<float>(i + 1) : -1.0f);
    }
  }
}

TEST(Narrow, stores_of_bf16_round_to_nearest_even_and_keep_nan) {
  const auto stored = [](float x) {
    bfloat16 to[LANES];
    store_elements(to, splat(x));
    return to[0].bits;
  };
  EXPECT_EQ(stored(1.0f), 0x3f80);
  EXPECT_EQ(stored(1.00390625f), 0x3f80);  // a tie goes to the even one
  EXPECT_EQ(stored(1.01171875f), 0x3f82);
  EXPECT_EQ(stored(3.4e38f), 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(bfloat16{stored(nan)})));
  float quiet_only_in_low_bits = nan;
  const std::uint32_t bits = 0x7f800001;
  std::memcpy(&quiet_only_in_low_bits, &bits, sizeof bits);
  EXPECT_TRUE(std::isnan(to_float(bfloat16{stored(quiet_only_in_low_bits)})));
}

TEST(Widen, EveryHalfIsExactWhereDenormalsAreSwitchedOff) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    half from[LANES];
    for (auto& element : from) std::memcpy(&element, &pattern, sizeof pattern);
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                        : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                       : std::ldexp(mantissa, -24);
    float wide = 0;
    {
      const NoDenormals no_denormals;
      wide = load_floats(from)[LANES - 1];
    }
    ASSERT_EQ(std::isnan(wide), std::isnan(size)) << bits;
    if (std::isnan(size)) continue;
    ASSERT_EQ(wide, bits >> 15 ? -size : size) << bits;
  }
}

TEST(Narrow, f16_survives_a_round_trip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    half from[LANES], to[LANES];
    for (auto& element : from) std::memcpy(&element, &pattern, sizeof pattern);
    const Floats v = load_floats(from);
    store_elements(to, v);
    std::uint16_t back = 0;
    std::memcpy(&back, &to[LANES - 1], sizeof back);
    if (std::isnan(v[0])) continue;
    ASSERT_EQ(back, pattern);
  }
}

}  // namespace
