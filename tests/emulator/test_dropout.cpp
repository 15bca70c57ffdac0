// Dropout on GPU templates draws the pattern that docs/semantics.md, "Dropout", tells bit for bit, which CPU templates are held to by `ejk
// verify`, and CUDA by `ejk verify --device cuda`: so the pattern is one, whatever the backend, the tile size and the pass.
#include <gtest/gtest.h>

#include "emulator/trial.hpp"
#include "tests/paths.hpp"

namespace ejk::dropout_test {
namespace {

using Sizes = std::map<std::string, std::int64_t>;
const Sizes grouped = {{"B", 2}, {"Sq", 37}, {"Sk", 90}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

Subject dropping(const char* kernel, const char* case_name, const char* file, int device = 0) {
  return {test::source_dir(), kernel, case_name, file, grouped, "dropout drops what Philox says", device};
}

struct Row {
  const char* name;
  Subject subject;
  friend void PrintTo(const Row& row, std::ostream* stream) { *stream << row.name; }
};

class Dropout : public testing::TestWithParam<Row> {};

TEST_P(Dropout, DropsWhatPhiloxSays) {
  const auto outcome = try_template(GetParam().subject, std::nullopt);
  EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.words;
}

INSTANTIATE_TEST_SUITE_P(
    Every, Dropout,
    testing::Values(Row{"forward_mma", dropping("flash_attention", "dropout.bf16", "flash_attention/forward.mma.gpu.cu")},
                    Row{"forward_plain", dropping("flash_attention", "dropout.f32", "flash_attention/forward.plain.gpu.cu")},
                    Row{"forward_wave", dropping("flash_attention", "dropout.bf16", "flash_attention/forward.wave.gpu.cu", 1)},
                    Row{"backward_mma", dropping("flash_attention_bwd", "dropout.bf16", "flash_attention_bwd/backward.mma.gpu.cu")},
                    Row{"backward_plain", dropping("flash_attention_bwd", "dropout.f32", "flash_attention_bwd/backward.plain.gpu.cu")}),
    [](const auto& info) { return std::string(info.param.name); });

// Another key's lane: no result is far from the reference's then, but for which weights are there.
TEST(DropoutMutant, IsFound) {
  const Mutation mutation{"static_cast<uint32_t>(key) >> 3", 0, "static_cast<uint32_t>(key) >> 2", "device/attention/attention_plain.h"};
  const auto outcome = try_template(dropping("flash_attention", "dropout.f32", "flash_attention/forward.plain.gpu.cu"), mutation);
  EXPECT_EQ(outcome.verdict, Verdict::wrong) << outcome.words;
  EXPECT_NE(outcome.words.find("the weight of sequence"), std::string::npos) << outcome.words;
}

}  // namespace
}  // namespace ejk::dropout_test
