// The GPU vocabulary's square roots: of every f32 mantissa, on NVIDIA's words and on AMD's, against long doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "emulator/program.hpp"

namespace ejk {
namespace {

// b[i], c[i] = sqrt, rsqrt of a[i].
const std::string all_roots =
    "#include \"device/number/roots.h\"\n"
    "KERNEL(32, 1) kernel(void* a, void* b, void* c, int64_t n) {\n"
    "  for (int64_t i = thread_x(); i < n; i += 32) {\n    const float x = static_cast<const float*>(a)[i];\n"
    "    static_cast<float*>(b)[i] = sqrt_of(x);\n    static_cast<float*>(c)[i] = rsqrt_of(x);\n  }\n}\n";

struct Roots {
  std::vector<float> of, roots, reciprocals;
};
Roots roots_of(const Program& program, std::vector<float> x) {
  Roots found{x, std::vector<float>(x.size()), std::vector<float>(x.size())};
  program.run({}, x.data(), found.roots.data(), found.reciprocals.data(), static_cast<std::int64_t>(x.size()));
  return found;
}

// The first element that is not to nearest; -1: all are.
std::int64_t first_wrong(const Roots& found) {
  for (std::size_t i = 0; i < found.of.size(); ++i) {
    const long double truth = std::sqrt(static_cast<long double>(found.of[i]));
    if (found.roots[i] != static_cast<float>(truth) || found.reciprocals[i] != static_cast<float>(1 / truth))
      return static_cast<std::int64_t>(i);
  }
  return -1;
}

class GpuRoots : public testing::TestWithParam<const char*> {};

TEST_P(GpuRoots, OfEveryMantissaAreToNearest) {
  const Program program(all_roots, {}, GetParam());
  std::vector<float> x;
  for (float next = 1; next < 4; next = std::nextafter(next, 4.0f)) {  // beyond that the exponent alone differs
    x.push_back(next);
    if (x.size() < 1 << 20 && next < std::nextafter(4.0f, 0.0f)) continue;
    const auto found = roots_of(program, x);
    const auto wrong = first_wrong(found);
    ASSERT_EQ(wrong, -1) << found.of[static_cast<std::size_t>(wrong)];
    x.clear();
  }
}

TEST_P(GpuRoots, AreToNearestAtAllMagnitudesAndKnowWhatIsNone) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Program program(all_roots, {}, GetParam());
  std::vector<float> x;
  for (double next = 1e-45; next < 3.4e38; next *= 1.0137) x.push_back(static_cast<float>(next));
  const auto found = roots_of(program, x);
  const auto wrong = first_wrong(found);
  EXPECT_EQ(wrong, -1) << found.of[static_cast<std::size_t>(wrong)];

  const auto special = roots_of(program, {0, -0.0f, inf, -1, -inf, nan, -1e-45f});
  EXPECT_EQ(special.roots[0], 0);
  EXPECT_EQ(special.reciprocals[0], inf);
  EXPECT_TRUE(special.roots[1] == 0 && std::signbit(special.roots[1]));
  EXPECT_EQ(special.reciprocals[1], -inf);
  EXPECT_EQ(special.roots[2], inf);
  EXPECT_EQ(special.reciprocals[2], 0);
  for (std::size_t i = 3; i < 7; ++i) EXPECT_TRUE(std::isnan(special.roots[i]) && std::isnan(special.reciprocals[i])) << special.of[i];
}

TEST_P(GpuRoots, OfSixteenBitsGoThroughF32) {
  const Program program(
      "#include \"device/number/roots.h\"\n"
      "KERNEL(32, 1) kernel(void* a, void* b, void*, int64_t n) {\n"
      "  for (int64_t i = thread_x(); i < n; i += 32) {\n    const uint16_t bits = static_cast<uint16_t>(i);\n"
      "    const half h{bits};\n    const bfloat16 f{bits};\n"
      "    static_cast<int*>(a)[i] = sqrt_of(h).bits == from_float<half>(sqrt_of(to_float(h))).bits;\n"
      "    static_cast<int*>(b)[i] = rsqrt_of(f).bits == from_float<bfloat16>(rsqrt_of(to_float(f))).bits;\n  }\n}\n",
      {}, GetParam());
  std::vector<int> a(0x10000), b(0x10000);
  program.run({}, a.data(), b.data(), nullptr, 0x10000);
  EXPECT_EQ(a, std::vector<int>(0x10000, 1));
  EXPECT_EQ(b, std::vector<int>(0x10000, 1));
}

INSTANTIATE_TEST_SUITE_P(Words, GpuRoots, testing::Values("warp32", "cdna"));

}  // namespace
}  // namespace ejk
