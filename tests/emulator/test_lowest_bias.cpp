// Rows of a bias of the lowest finite number on GPU templates: their keys share them, and other keys' weights stay, forwards and backwards.
#include <gtest/gtest.h>

#include "emulator/trial.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

using Sizes = std::map<std::string, std::int64_t>;
const Sizes grouped = {{"B", 2}, {"Sq", 37}, {"Sk", 90}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};
const Sizes few = {{"B", 2}, {"Sq", 2}, {"Sk", 190}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};
const Sizes shared = {{"B", 2}, {"Bb", 1}, {"Hb", 4}, {"Sq", 37}, {"Sk", 90}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

Subject lowered(const char* kernel, const char* case_name, const char* file, const Sizes& sizes, int device = 0) {
  return {test::source_dir(), kernel, case_name, file, sizes, "keys share a row whose biases are the lowest finite number", device};
}

struct Row {
  const char* name;
  Subject subject;
  friend void PrintTo(const Row& row, std::ostream* stream) { *stream << row.name; }
};

class LowestBias : public testing::TestWithParam<Row> {};

TEST_P(LowestBias, IsSharedByARowsKeys) {
  const auto outcome = try_template(GetParam().subject, std::nullopt);
  EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.words;
}

INSTANTIATE_TEST_SUITE_P(
    Every, LowestBias,
    testing::Values(
        Row{"forward_mma", lowered("flash_attention", "bias.bf16.f32", "flash_attention/forward.mma.gpu.cu", grouped)},
        Row{"forward_split", lowered("flash_attention", "bias.bf16.f32", "flash_attention/forward.split.gpu.cu", few)},
        Row{"forward_plain", lowered("flash_attention", "bias.f32.f32", "flash_attention/forward.plain.gpu.cu", grouped)},
        Row{"forward_wave", lowered("flash_attention", "bias.bf16.f32", "flash_attention/forward.wave.gpu.cu", grouped, 1)},
        Row{"backward_mma", lowered("flash_attention_bwd", "bias.bf16.f32", "flash_attention_bwd/backward.mma.gpu.cu", shared)},
        Row{"backward_plain", lowered("flash_attention_bwd", "bias.f32.f32", "flash_attention_bwd/backward.plain.gpu.cu", shared)},
        Row{"backward_wave", lowered("flash_attention_bwd", "bias.bf16.f32", "flash_attention_bwd/backward.wave.gpu.cu", shared, 1)}),
    [](const auto& info) { return std::string(info.param.name); });

// Without the limit a row of such a bias is one of minus infinity: it gives 0.
TEST(LowestBiasMutant, IsFoundWithoutTheLimit) {
  const Mutation mutation{"score += limited_bias(", 0, "score += (", "device/attention/attention_score.h"};
  const auto outcome = try_template(lowered("flash_attention", "bias.f32.f32", "flash_attention/forward.plain.gpu.cu", grouped), mutation);
  EXPECT_EQ(outcome.verdict, Verdict::wrong) << outcome.words;
}

// Without the count each key of such a row weighs 1.
TEST(LowestBiasMutant, IsFoundWithoutTheCount) {
  const Mutation mutation{"row_lse[local] = faint_log(", 0, "equal = (", "flash_attention_bwd/attention_backward.h"};
  const auto outcome =
      try_template(lowered("flash_attention_bwd", "bias.f32.f32", "flash_attention_bwd/backward.plain.gpu.cu", shared), mutation);
  EXPECT_EQ(outcome.verdict, Verdict::wrong) << outcome.words;
}

}  // namespace
}  // namespace ejk
