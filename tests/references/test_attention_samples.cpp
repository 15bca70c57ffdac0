// Rows sampled of attention are those of the whole reference, for every option alone; what no sample can say is left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/kernels/attention_options.hpp"
#include "references/samples.hpp"

namespace ejk::reference {
namespace {

void check_options(const std::string& kernel, bool gradient) {
  for (const OptionCase& option : attention_option_cases(gradient))
    if (option.alone) expect_samples_of_the_whole(make_call(spec_of(kernel), option.c, 7));
}

TEST(AttentionSamples, AreRowsOfTheOutputs) { check_options("flash_attention", false); }
TEST(AttentionSamples, AreRowsOfTheGradients) { check_options("flash_attention_bwd", true); }

spec::Case case_of(std::int64_t tokens) {
  spec::Case c;
  c.name = "plain";
  c.types = {{"E", "bf16"}};
  for (const auto& [dim, size] :
       std::map<std::string, std::int64_t>{{"B", 3}, {"Sq", tokens}, {"Sk", tokens}, {"Hq", 4}, {"Hkv", 2}, {"D", 8}, {"Dv", 8}})
    c.dims[dim] = size;
  return c;
}

TEST(AttentionSamples, ReachTheLastRowAndOthers) {
  Rng rng(1);
  const Call call = make_call(spec_of("flash_attention"), case_of(40), 2);
  const Samples samples = find_reference("flash_attention")->sample(call, rng);
  const auto& places = samples.at("lse").places;  // [B, Hq, Sq]
  EXPECT_GT(std::count_if(places.begin(), places.end(), [](auto place) { return place % 40 < 20; }), 20);
  EXPECT_TRUE(std::any_of(places.begin(), places.end(), [](auto place) { return place % 40 == 39; }));
}

// What rounding may leave is a root mean square of the rows that were taken: near that of all.
TEST(AttentionSamples, RoundingIsThatOfTheRowsTaken) {
  Rng rng(1);
  const Call call = make_call(spec_of("flash_attention_bwd"), case_of(40), 2);
  const Samples samples = find_reference("flash_attention_bwd")->sample(call, rng);
  const Values values = compute(call);
  for (const char* gradient : {"dq", "dk"}) {
    EXPECT_GT(samples.at(gradient).rounding, rounding_of(values, gradient) / 2) << gradient;
    EXPECT_LT(samples.at(gradient).rounding, rounding_of(values, gradient) * 2) << gradient;
  }
}

TEST(AttentionSamples, SayNothingOfSums) {
  Rng rng(1);
  spec::Case c = case_of(9);
  c.types["Es"] = "f32";
  c.dims["A"] = std::int64_t{2};
  c.given = {"softmax_aux", "dsoftmax_aux"};
  const Samples samples = find_reference("flash_attention_bwd")->sample(make_call(spec_of("flash_attention_bwd"), c, 2), rng);
  EXPECT_TRUE(samples.contains("dq"));
  EXPECT_FALSE(samples.contains("dsoftmax_aux"));
}

}  // namespace
}  // namespace ejk::reference
