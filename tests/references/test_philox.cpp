// Philox against its authors' vectors (Random123, kat_vectors), and the dropout rule.
#include <gtest/gtest.h>

#include <map>

#include "reference/philox.hpp"

namespace ejk::reference {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, LanesAreLowHalfFirst) {
  // Row 0, query 0, keys 0..7 with seed 0: the lanes of the first known answer.
  const std::uint32_t lanes[] = {0xe8d5, 0x6627, 0xc58d, 0xe169, 0xac4c, 0xbc57, 0xdbd8, 0x9b00};
  for (const double probability : {0.1, 0.5, 0.7, 0.9}) {
    const Dropout dropout(probability, 0);
    const double threshold = std::floor(65536 * probability + 0.5);
    for (std::int64_t j = 0; j < 8; ++j) EXPECT_EQ(dropout.factor(0, 0, j), lanes[j] >= threshold ? 65536 / (65536 - threshold) : 0) << j;
  }
}

TEST(Dropout, DependsOnSeedRowQueryAndKey) {
  const auto pattern = [](std::uint64_t seed, std::int64_t row, std::int64_t i, std::int64_t j) {
    std::uint64_t bits = 0;
    for (std::int64_t k = 0; k < 64; ++k) bits = bits * 2 + (Dropout(0.5, seed).factor(row, i, j + k) > 0);
    return bits;
  };
  const std::uint64_t base = pattern(1, 2, 3, 0);
  EXPECT_EQ(base, pattern(1, 2, 3, 0));
  EXPECT_NE(base, pattern(2, 2, 3, 0));
  EXPECT_NE(base, pattern(1 + (std::uint64_t{1} << 32), 2, 3, 0)) << "the high word of the seed counts";
  EXPECT_NE(base, pattern(1, 3, 3, 0));
  EXPECT_NE(base, pattern(1, 2, 4, 0));
  EXPECT_NE(base, pattern(1, 2, 3, 64));
}

TEST(Dropout, TheMeanFactorIsOne) {
  const Dropout dropout(0.3, 42);
  double sum = 0;
  for (std::int64_t i = 0; i < 200; ++i)
    for (std::int64_t j = 0; j < 500; ++j) sum += dropout.factor(7, i, j);
  EXPECT_NEAR(sum / 100000, 1, 0.01);
}

TEST(Dropout, ExtremesKeepAllAndDropAll) {
  for (std::int64_t j = 0; j < 100; ++j) {
    EXPECT_EQ(Dropout(0, 5).factor(0, 0, j), 1);
    EXPECT_EQ(Dropout(1e-6, 5).factor(0, 0, j), 1) << "rounds to a threshold of 0";
    EXPECT_EQ(Dropout(0.9999999, 5).factor(0, 0, j), 0) << "rounds to a threshold of 65536";
  }
}

}  // namespace
}  // namespace ejk::reference
