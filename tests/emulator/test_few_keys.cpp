// The delta rule in chunks, of keys of few features in bf16: they overlap much, so that what tokens write may be far larger than its sum;
// states and gradients in f32 stay good.
#include <gtest/gtest.h>

#include "emulator/trial.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

Outcome of_few_keys(const char* kernel, const char* case_name, const char* file, std::int64_t tokens) {
  return try_template(
      {test::source_dir(), kernel, case_name, file, {{"B", 1}, {"T", tokens}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 8}, {"V", 16}}},
      std::nullopt);
}

TEST(KeysOfFewFeatures, HaveStatesOfF32) {
  const auto outcome = of_few_keys("recurrent", "chunks_delta.bf16", "recurrent/forward.chunk.gpu.cu", 300);
  EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.words;
}

TEST(KeysOfFewFeatures, HaveGradientsOfF32) {
  const auto outcome = of_few_keys("recurrent_bwd", "chunks_delta.f32", "recurrent/backward.chunk.gpu.cu", 300);
  EXPECT_EQ(outcome.verdict, Verdict::right) << outcome.words;
}

}  // namespace
}  // namespace ejk
