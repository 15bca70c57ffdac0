// Matrix tiles through the library: a GEMM of matrix loads, double-buffered copies and mma, and its mutants, each of which must fail.
#include <gtest/gtest.h>

#include "emulator/trial.hpp"
#include "tests/paths.hpp"

namespace ejk::gemm_test {
namespace {

struct Row {
  const char* name;
  Mutation mutation;
  friend void PrintTo(const Row& row, std::ostream* stream) { *stream << row.name; }
};

Subject gemm(const std::string& type) {
  return {test::source_dir() + "/tests/emulator/data", "gemm", "ragged." + type, "gemm/gemm.gpu.cu"};
}

class GemmMutant : public ::testing::TestWithParam<Row> {};

TEST(Gemm, IsRightInBothTypesAndOrders) {
  for (const char* type : {"f16", "bf16"}) {
    const auto outcome = try_template(gemm(type), std::nullopt);
    EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.words;
  }
}

TEST_P(GemmMutant, IsFound) {
  const auto outcome = try_template(gemm("bf16"), GetParam().mutation);
  EXPECT_NE(outcome.verdict, Verdict::right);
  EXPECT_NE(outcome.verdict, Verdict::broken) << outcome.words;
}

INSTANTIATE_TEST_SUITE_P(
    All, GemmMutant,
    ::testing::Values(Row{"NoBarrierAfterTheCopies", {"sync_block();", 0, ""}},
                      Row{"NoBarrierBeforeTheNextCopies", {"sync_block();", 1, ""}},
                      Row{"AWaitThatLeavesOneGroupMore", {"copy_async_wait<1>", 0, "copy_async_wait<2>"}},
                      Row{"NoWait", {"copy_async_wait<1>();", 0, ""}}, Row{"NoCommit", {"copy_async_commit();", 0, ""}},
                      Row{"BarrierOfOneWarp", {"sync_block();", 0, "if (warp() == 0) sync_block();"}},
                      Row{"SwappedColumnsOfA", {"step + lane() / 16 * 8", 0, "step + (1 - lane() / 16) * 8"}},
                      Row{"SwappedRowsOfB", {"step + lane() % 16", 0, "step + (lane() ^ 8) % 16"}},
                      Row{"BNotTransposed", {"load_matrices_transposed", 0, "load_matrices"}},
                      Row{"SwappedLanesOfC", {"lane() % 4 * 2 + i % 2", 0, "lane() % 4 + i % 2 * 4"}},
                      Row{"SwappedRowsOfC", {"lane() / 4 + i / 2 * 8", 0, "lane() % 8 + i / 2 * 8"}},
                      Row{"MisalignedRows", {"DEPTH + ${padding}", 0, "DEPTH + 4"}},
                      Row{"StageTooSmall", {"STAGE = ${stage}", 0, "STAGE = ${stage} + 64"}},
                      Row{"DivergentMma", {"mma_16x8x16<E>(sums[n / 8],", 0, "if (lane() != 3) mma_16x8x16<E>(sums[n / 8],"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ejk::gemm_test
