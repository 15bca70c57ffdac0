// The words that device/platform/amd.h makes for AMD's GPUs, on the emulator: a warp is half of a wave of 64, or all of one of 32.
#include <gtest/gtest.h>

#include <vector>

#include "emulator/program.hpp"

namespace ejk {
namespace {

class AmdWords : public ::testing::TestWithParam<const char*> {
 protected:
  // What every thread of two blocks of 160 (a wave of 64 is half empty) writes at its place; the same in both orders.
  std::vector<std::int32_t> values_of(const std::string& expression, const std::string& before = {}) const {
    const Program program(
        before +
            "KERNEL(1024, 1) kernel(void* a, void* b, void*, int64_t) {\n  const auto* given = static_cast<const int32_t*>(b);\n"
            "  static_cast<int32_t*>(a)[160 * block_x() + thread_x()] = given[0] * (" +
            expression + ");\n}\n",
        {}, GetParam());
    std::vector<std::int32_t> results[2];
    for (const auto order : {SimtOrder::forwards, SimtOrder::backwards}) {
      const Order scope(order);
      auto& found = results[order == SimtOrder::backwards];
      found.assign(320, -7);
      std::int32_t one[4] = {1, 2, 3, 4};
      program.run({2, 1, 1, 160, 1024}, found.data(), one);
    }
    EXPECT_EQ(results[0], results[1]) << expression;
    return results[0];
  }
};

TEST_P(AmdWords, ShufflesStayInTheWarp) {
  const auto by_xor = values_of("shuffle_xor(thread_x(), 5)"), down = values_of("shuffle_down(thread_x(), 3)");
  const auto of_one = values_of("shuffle(thread_x(), 7)"), of_each = values_of("shuffle(thread_x(), lane() * 3 + 1)");
  const auto before = values_of("shuffle(thread_x(), lane() - 1)");
  for (int x = 0; x < 320; ++x) {
    const auto i = static_cast<std::size_t>(x);
    const int lane = x % 160 % 32, thread = x % 160, first = thread - lane;
    EXPECT_EQ(by_xor[i], first + (lane ^ 5));
    EXPECT_EQ(down[i], lane + 3 < 32 ? thread + 3 : thread);
    EXPECT_EQ(of_one[i], first + 7);
    EXPECT_EQ(of_each[i], first + (lane * 3 + 1) % 32);
    EXPECT_EQ(before[i], first + (lane + 31) % 32);
  }
}

TEST_P(AmdWords, VotesAreOfTheWarpOrOfTheBlock) {
  const auto warps = values_of("any_in_warp(thread_x() == 40)"), nobody = values_of("any_in_warp(thread_x() < 0)");
  const auto blocks = values_of("any_in_block(thread_x() == 70 && block_x() == 1) + 10 * any_in_block(thread_x() == 3)");
  for (std::size_t i = 0; i < 320; ++i) {
    EXPECT_EQ(warps[i], i % 160 / 32 == 1);
    EXPECT_EQ(nobody[i], 0);
    EXPECT_EQ(blocks[i], i < 160 ? 10 : 11);
  }
}

// The two warps of a wave need not do the same.
TEST_P(AmdWords, TheHalvesOfAWaveMayPart) {
  const auto sums =
      values_of("rounds()",
                "static int rounds() {\n  int x = thread_x();\n  for (int i = 0; i < warp(); ++i) x = shuffle_xor(x, 1 << i) + "
                "any_in_warp(lane() == 4);\n  return x;\n}\n");
  for (int x = 0; x < 160; ++x) {
    int warp = x / 32, lane = x % 32;
    for (int i = 0; i < warp; ++i) lane ^= 1 << i;
    EXPECT_EQ(sums[static_cast<std::size_t>(x)], 32 * warp + lane + warp);
  }
}

TEST_P(AmdWords, CopiesGoThroughRegisters) {
  const auto found =
      values_of("copied(given)",
                "static int copied(const int32_t* from) {\n  char* memory = dynamic_shared();\n  const bool wanted = lane() % 2 == 0;\n"
                "  if (thread_x() < 32) copy_async_16(shared_pointer(memory) + 16 * thread_x(), from, wanted);\n"
                "  copy_async_commit();\n  copy_async_wait<0>();\n  sync_block();\n"
                "  return reinterpret_cast<const int32_t*>(memory)[4 * lane() + 3];\n}\n");
  for (int x = 0; x < 320; ++x) EXPECT_EQ(found[static_cast<std::size_t>(x)], x % 160 % 2 == 0 ? 4 : 0);
}

// What a warp reads of the other half of its wave is undefined, as is its half of a ballot.
TEST(AmdWaves, AreOf64OrOf32Threads) {
  const auto read = [](const char* arch, const char* expression) {
    const Program program(
        std::string("KERNEL(64, 1) kernel(void* a, void*, void*, int64_t) {\n  static_cast<uint32_t*>(a)[thread_x()] = ") + expression +
            ";\n}\n",
        {}, arch);
    std::vector<std::uint32_t> found(64);
    program.run({1, 1, 1, 64, 0}, found.data());
    return found;
  };
  constexpr std::uint32_t undefined = 0x7fff7fff;
  EXPECT_EQ(read("cdna", "permute_wave(1, (thread_x() + 32) % 64)")[5], undefined);
  EXPECT_EQ(read("cdna", "permute_wave(thread_x(), thread_x())")[37], 37u);
  EXPECT_EQ(read("rdna3", "permute_wave(thread_x(), 3)")[37], 35u);
  EXPECT_EQ(read("cdna", "static_cast<uint32_t>(ballot_wave(false))")[40], ~0u);
  EXPECT_EQ(read("cdna", "static_cast<uint32_t>(ballot_wave(lane() == 2) >> 32)")[40], 4u);
  EXPECT_EQ(read("rdna3", "static_cast<uint32_t>(ballot_wave(lane() == 2))")[40], 4u);
}

INSTANTIATE_TEST_SUITE_P(Archs, AmdWords, ::testing::Values("cdna", "rdna3", "rdna4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ejk
