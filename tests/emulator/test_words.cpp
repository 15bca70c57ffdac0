// The vocabulary's words one by one, on the emulator: who a thread is, barriers, votes, shuffles, numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "emulator/program.hpp"
#include "reference/element.hpp"

namespace ejk {
namespace {

constexpr SimtOrder both[] = {SimtOrder::forwards, SimtOrder::backwards};

// What every thread writes at its place, in launch order; the same in both orders.
std::vector<std::int32_t> values_of(const std::string& expression, const Dimensions& dimensions, const std::string& before = {}) {
  const Program program(before +
                        "KERNEL(1024, 1) kernel(void* a, void*, void*, int64_t n) {\n"
                        "  const int block = block_x() + grid_x() * (block_y() + static_cast<int>(n >> 32) * block_z());\n"
                        "  static_cast<int32_t*>(a)[static_cast<int32_t>(n) * block + thread_x()] = " +
                        expression + ";\n}\n");
  const auto count = static_cast<std::size_t>(dimensions.grid_x * dimensions.grid_y * dimensions.grid_z * dimensions.threads);
  std::vector<std::int32_t> results[2];
  for (const auto order : both) {
    const Order scope(order);
    auto& found = results[order == SimtOrder::backwards];
    found.assign(count, -7);
    program.run(dimensions, found.data(), nullptr, nullptr, dimensions.grid_y << 32 | dimensions.threads);
  }
  EXPECT_EQ(results[0], results[1]) << expression;
  return results[0];
}

TEST(SimtIds, AreThoseOfTheLaunch) {
  const Dimensions grid{3, 2, 2, 70, 0};
  const auto found = values_of("thread_x() + 1000 * block_x() + 10000 * block_y() + 100000 * block_z() + 1000000 * grid_x()", grid);
  for (int block = 0; block < 12; ++block)
    for (int x = 0; x < 70; ++x)
      EXPECT_EQ(found[static_cast<std::size_t>(70 * block + x)],
                x + 1000 * (block % 3) + 10000 * (block / 3 % 2) + 100000 * (block / 6) + 3000000);
  const auto lanes = values_of("lane() + 100 * warp() + 10000 * WARP", {1, 1, 1, 70, 0});
  for (int x = 0; x < 70; ++x) EXPECT_EQ(lanes[static_cast<std::size_t>(x)], x % 32 + 100 * (x / 32) + 320000);
}

TEST(SimtBarrier, LetsEveryThreadSeeWhatAllWroteBefore) {
  const auto found =
      values_of("neighbours()", {2, 1, 1, 96, 0},
                "static int neighbours() {\n  __shared__ int x[96];\n  x[thread_x()] = 10 * thread_x() + block_x();\n  sync_block();\n"
                "  const int y = x[(thread_x() + 1) % 96] + x[95 - thread_x()];\n  sync_block();\n  return y;\n}\n");
  for (int i = 0; i < 192; ++i) EXPECT_EQ(found[static_cast<std::size_t>(i)], 10 * ((i % 96 + 1) % 96) + 10 * (95 - i % 96) + 2 * (i / 96));
}

TEST(SimtBarrier, WaitsOnlyForThreadsThatLive) {
  const Program program(
      "KERNEL(64, 1) kernel(void* a, void*, void*, int64_t) {\n  if (thread_x() % 3 == 0) return;\n  sync_block();\n"
      "  static_cast<int*>(a)[thread_x()] = any_in_block(thread_x() == 62) + any_in_warp(thread_x() % 32 == 0);\n}\n");
  for (const auto order : both) {
    const Order scope(order);
    std::vector<int> out(64, 5);
    program.run({1, 1, 1, 64, 0}, out.data());
    for (int x = 0; x < 64; ++x) EXPECT_EQ(out[static_cast<std::size_t>(x)], x % 3 == 0 ? 5 : 1 + (x >= 32)) << x;
  }
}

TEST(SimtVotes, AreOfTheWarpAndOfTheBlock) {
  const auto warps = values_of("any_in_warp(thread_x() == 40)", {1, 1, 1, 96, 0});
  const auto nobody = values_of("any_in_block(thread_x() == 96)", {1, 1, 1, 96, 0});
  const auto blocks = values_of("any_in_block(thread_x() == 40 && block_x() == 1)", {2, 1, 1, 96, 0});
  for (std::size_t x = 0; x < 96; ++x) {
    EXPECT_EQ(warps[x], x / 32 == 1);
    EXPECT_EQ(nobody[x], 0);
    EXPECT_EQ(blocks[x], 0);
    EXPECT_EQ(blocks[96 + x], 1);
  }
}

TEST(SimtShuffles, BringTheValueOfTheirLane) {
  const Dimensions warps{1, 1, 1, 64, 0};
  const auto by_xor = values_of("shuffle_xor(thread_x(), 5)", warps), down = values_of("shuffle_down(thread_x(), 3)", warps);
  const auto of_one = values_of("shuffle(thread_x(), 7)", warps), of_each = values_of("shuffle(thread_x(), (lane() * 3 + 1) % 32)", warps);
  const auto real = values_of("static_cast<int>(4 * shuffle_xor(0.25f * thread_x(), 16))", warps);
  for (int x = 0; x < 64; ++x) {
    const auto i = static_cast<std::size_t>(x);
    const int lane = x % 32, first = x - lane;
    EXPECT_EQ(by_xor[i], first + (lane ^ 5));
    EXPECT_EQ(down[i], lane + 3 < 32 ? x + 3 : x);
    EXPECT_EQ(of_one[i], first + 7);
    EXPECT_EQ(of_each[i], first + (lane * 3 + 1) % 32);
    EXPECT_EQ(real[i], first + (lane ^ 16));
  }
}

TEST(SimtShuffles, OfALaneThatIsGoneAreUndefined) {
  const Program program(
      "KERNEL(32, 1) kernel(void* a, void*, void*, int64_t) {\n  if (lane() == 31) return;\n"
      "  static_cast<float*>(a)[lane()] = shuffle_xor(1.0f, 1);\n}\n");
  std::vector<float> out(32, 0);
  program.run({}, out.data());
  EXPECT_EQ(out[29], 1);
  EXPECT_TRUE(std::isnan(out[30]));
}

TEST(SimtReduction, OfABlockIsTheSum) {
  const auto found =
      values_of("total()", {1, 1, 1, 128, 0},
                "static int total() {\n  __shared__ int parts[4];\n  int x = thread_x() * thread_x();\n"
                "  for (int m = 16; m; m /= 2) x += shuffle_xor(x, m);\n  if (lane() == 0) parts[warp()] = x;\n  sync_block();\n"
                "  return parts[0] + parts[1] + parts[2] + parts[3];\n}\n");
  for (const auto x : found) EXPECT_EQ(x, 127 * 128 * 255 / 6);
}

TEST(SimtSharedMemory, MayLieInFunctionsOfEveryKind) {
  const auto found = values_of(
      "plain(thread_x()) + 10 * of_template<64>(thread_x()) + 100 * inline_template<64>(thread_x()) + 1000 * in_lambda(thread_x())",
      {1, 1, 1, 64, 0},
      "#define BODY __shared__ int x[64]; x[i] = i; sync_block(); return x[i ^ 1]\n"
      "int plain(int i) { BODY; }\ntemplate <int N> static inline int of_template(int i) { BODY; }\n"
      "template <int N> inline int inline_template(int i) { BODY; }\nauto in_lambda = [](int i) { BODY; };\n");
  for (int x = 0; x < 64; ++x) EXPECT_EQ(found[static_cast<std::size_t>(x)], (x ^ 1) * 1111);
}

TEST(SimtSharedMemory, IsUndefinedWhenABlockStarts) {
  const Program program(
      "KERNEL(32, 1) kernel(void* a, void*, void*, int64_t) {\n  __shared__ float x[32];\n  auto* y = "
      "reinterpret_cast<float*>(dynamic_shared());\n"
      "  static_cast<float*>(a)[32 * block_x() + lane()] = x[lane()] + y[lane()];\n  x[lane()] = y[lane()] = 1;\n}\n");
  std::vector<float> out(96, 0);
  program.run({3, 1, 1, 32, 128}, out.data());
  for (const float x : out) EXPECT_TRUE(std::isnan(x));
}

TEST(SimtNumbers, AreRoundedToNearestEvenAndKeepNan) {
  const Program program(
      "KERNEL(32, 1) kernel(void* a, void* b, void* c, int64_t n) {\n"
      "  for (int64_t i = thread_x(); i < n; i += WARP) {\n    const float x = static_cast<const float*>(a)[i];\n"
      "    const uint32_t h = pack_pair<half>(x, 2 * x), f = pack_pair<bfloat16>(x, 2 * x);\n"
      "    static_cast<uint32_t*>(b)[4 * i] = h;\n    static_cast<uint32_t*>(b)[4 * i + 1] = f;\n"
      "    static_cast<uint32_t*>(b)[4 * i + 2] = from_float<half>(x).bits;\n    static_cast<uint32_t*>(b)[4 * i + 3] = "
      "from_float<bfloat16>(x).bits;\n"
      "    static_cast<float*>(c)[2 * i] = to_float(from_float<half>(x));\n    static_cast<float*>(c)[2 * i + 1] = "
      "to_float(from_float<bfloat16>(x));\n"
      "  }\n}\n");
  std::vector<float> in = {0,     -0.0f,   1,       -2.5f,       65504,       65519,  65520,    1e30f,     3.4e38f,
                           6e-8f, 2.9e-8f, 3.1e-5f, 1.00390625f, 1.01171875f, 1e-40f, INFINITY, -INFINITY, 0.333333f};
  const auto n = in.size();
  in.push_back(std::numeric_limits<float>::quiet_NaN());
  in.push_back(std::bit_cast<float>(0xff800001u));  // a NaN whose upper half is infinity
  std::vector<std::uint32_t> bits(4 * in.size());
  std::vector<float> back(2 * in.size());
  program.run({}, in.data(), bits.data(), back.data(), static_cast<std::int64_t>(in.size()));
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half = 0, brain = 0;
    reference::store_element(DType::f16, &half, in[i]);
    reference::store_element(DType::bf16, &brain, in[i]);
    EXPECT_EQ(bits[4 * i] & 0xffff, half) << in[i];
    EXPECT_EQ(bits[4 * i + 1] & 0xffff, brain) << in[i];
    EXPECT_EQ(bits[4 * i + 2], half) << in[i];
    EXPECT_EQ(bits[4 * i + 3], brain) << in[i];
    EXPECT_EQ(back[2 * i], static_cast<float>(reference::load_element(DType::f16, &half))) << in[i];
    EXPECT_EQ(back[2 * i + 1], static_cast<float>(reference::load_element(DType::bf16, &brain))) << in[i];
  }
  for (std::size_t i = 2 * n; i < back.size(); ++i) EXPECT_TRUE(std::isnan(back[i]));
}

// A soft cap multiplies tanh of small scores by much.
TEST(SimtMath, TanhIsGoodToItsOwnSize) {
  const Program program(
      "KERNEL(32, 1) kernel(void* a, void* b, void*, int64_t n) {\n"
      "  for (int64_t i = thread_x(); i < n; i += WARP) static_cast<float*>(b)[i] = tanh_of(static_cast<const float*>(a)[i]);\n}\n");
  std::vector<float> in = {INFINITY, -INFINITY, 2e38f, NAN, 0};
  for (float x = 1e-20f; x < 30; x *= 1.01f) in.insert(in.end(), {x, -x});
  std::vector<float> out(in.size());
  program.run({}, in.data(), out.data(), nullptr, static_cast<std::int64_t>(in.size()));
  for (std::size_t i = 0; i < in.size(); ++i)
    if (i == 3 || i == 4)
      EXPECT_TRUE(i == 3 ? std::isnan(out[i]) : out[i] == 0);
    else
      EXPECT_NEAR(out[i] / std::tanh(static_cast<double>(in[i])), 1, 6e-7) << in[i];
}

TEST(SimtMath, IsTheLibrarysWithoutDenormals) {
  const Program program(
      "KERNEL(32, 1) kernel(void* a, void* b, void*, int64_t n) {\n  for (int64_t i = thread_x(); i < n; i += WARP) {\n"
      "    const float x = static_cast<const float*>(a)[i];\n    auto* y = static_cast<float*>(b) + 5 * i;\n"
      "    y[0] = exp2_of(x), y[1] = log_of(x), y[2] = tanh_of(x), y[3] = reciprocal(x), y[4] = larger_of(x, 1.0f);\n  }\n}\n");
  std::vector<float> in = {0.5f, 3, 10.25f, -130, 2e38f, 1e-40f, NAN}, out(5 * in.size());
  program.run({}, in.data(), out.data(), nullptr, static_cast<std::int64_t>(in.size()));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(out[5 * i], std::exp2(in[i]));
    EXPECT_FLOAT_EQ(out[5 * i + 1], std::log(in[i]));
    EXPECT_FLOAT_EQ(out[5 * i + 3], 1 / in[i]);
    EXPECT_EQ(out[5 * i + 4], std::fmax(in[i], 1.0f));
  }
  EXPECT_EQ(out[15], 0) << "2^-130 is denormal";
  EXPECT_EQ(out[23], 0) << "1 / 2e38 is denormal";
  EXPECT_EQ(out[28], INFINITY) << "1e-40 counts as 0";
  EXPECT_EQ(out[34], 1) << "NaN is passed over";
}

}  // namespace
}  // namespace ejk
