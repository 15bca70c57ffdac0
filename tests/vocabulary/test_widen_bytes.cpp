// One-byte elements of the CPU vocabulary: every pattern, and sums over lanes.
#include <gtest/gtest.h>
#include <cmath>

#include "device/cpu.h"
#include "device/number/bytes_to_bf16.h"
#include "device/number/widen_bytes.h"
#include "device/tile/row_sums.h"

namespace {

// f8_e4m3 by its definition: OCP 8-bit floating point, bias 7, no infinity.
double e4m3(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double size = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  return (bits & 0x7f) == 0x7f ? std::nan("") : bits & 0x80 ? -size : size;
}

TEST(WidenBytes, EveryE4M3IsExact) {
  for (int first = 0; first < 256; first += LANES) {
    float8_e4m3 bytes[LANES];
    for (int lane = 0; lane < LANES; ++lane) bytes[lane].bits = static_cast<uint8_t>(first + lane);
    const Floats wide = load_floats(bytes);
    for (int lane = 0; lane < LANES; ++lane) {
      const double expected = e4m3(first + lane);
      EXPECT_EQ(std::isnan(expected), std::isnan(wide[lane])) << first + lane;
      EXPECT_EQ(std::isnan(expected), std::isnan(to_float(bytes[lane])));
      if (std::isnan(expected)) continue;
      EXPECT_EQ(wide[lane], expected) << first + lane;
      EXPECT_EQ(to_float(bytes[lane]), expected) << first + lane;
      EXPECT_EQ(std::signbit(wide[lane]), first + lane >= 128);
    }
  }
}

TEST(WidenBytes, EveryE4M3IsExactAsBf16) {
  for (int first = 0; first < 256; first += 32) {
    float8_e4m3 bytes[32];
    bfloat16 narrow[32];
    for (int i = 0; i < 32; ++i) bytes[i].bits = static_cast<uint8_t>(first + i);
    widen_32(bytes, narrow);
    for (int i = 0; i < 32; ++i) {
      const double expected = e4m3(first + i);
      EXPECT_EQ(std::isnan(expected), std::isnan(to_float(narrow[i]))) << first + i;
      EXPECT_EQ(narrow[i].bits >> 15, first + i >= 128 ? 1 : 0) << first + i;
      if (std::isnan(expected)) continue;
      EXPECT_EQ(to_float(narrow[i]), expected) << first + i;
    }
  }
}

TEST(WidenBytes, EveryI8IsExact) {
  for (int first = -128; first < 128; first += LANES) {
    int8_t bytes[LANES];
    for (int lane = 0; lane < LANES; ++lane) bytes[lane] = static_cast<int8_t>(first + lane);
    const Floats wide = load_floats(bytes);
    for (int lane = 0; lane < LANES; ++lane) EXPECT_EQ(wide[lane], first + lane);
  }
}

TEST(RowSums, LaneIHoldsTheSumOfVectorI) {
  Floats rows[LANES];
  float expected[LANES] = {};
  for (int row = 0; row < LANES; ++row)
    for (int lane = 0; lane < LANES; ++lane) {
      rows[row][lane] = static_cast<float>(1 << row) * static_cast<float>(lane + 1);
      expected[row] += rows[row][lane];
    }
  const Floats sums = row_sums(rows);
  for (int row = 0; row < LANES; ++row) EXPECT_EQ(sums[row], expected[row]) << row;
}

}  // namespace
