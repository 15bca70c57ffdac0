// What `ejk bench --check` says of results: whole ones and samples, right and wrong.
#include "bench/bench_check.hpp"

#include <gtest/gtest.h>

#include "references/calls.hpp"

namespace ejk::tools {
namespace {

spec::Case case_of(std::int64_t tokens) {
  spec::Case c;
  c.name = "plain";
  c.types = {{"E", "bf16"}};
  for (const char* dim : {"B", "Hq", "Hkv"}) c.dims[dim] = std::int64_t{1};
  for (const char* dim : {"Sq", "Sk"}) c.dims[dim] = tokens;
  for (const char* dim : {"D", "Dv"}) c.dims[dim] = std::int64_t{64};
  return c;
}

// A forward pass with its right results. More tokens than 500 are too many for the whole reference.
reference::Call attention_of(std::int64_t tokens) {
  auto call = reference::make_call(reference::spec_of("flash_attention"), case_of(tokens), 1);
  reference::execute_reference(call);
  return call;
}

TEST(BenchCheck, ASmallCallIsComparedWhole) {
  auto call = attention_of(40);
  const auto right = check_outputs(call, 1);
  EXPECT_EQ(right.against, "float64 reference");
  EXPECT_FALSE(right.failed());
  EXPECT_EQ(check_lines("plain", right, "  "), "");
  call.find("out")->set(40 * 64 - 1, 3);
  const auto wrong = check_outputs(call, 1);
  EXPECT_TRUE(wrong.failed());
  EXPECT_TRUE(wrong.text().starts_with("WRONG: out ")) << wrong.text();
  EXPECT_TRUE(check_lines("plain", wrong, "  ").starts_with("  plain: FAILED against a float64 reference: out"))
      << check_lines("plain", wrong, "");
  EXPECT_EQ(to_json(wrong)["failed"], true);
}

TEST(BenchCheck, OfALargeCallASampleIsCompared) {
  auto call = attention_of(1000);
  const auto right = check_outputs(call, 1);
  EXPECT_EQ(right.against, "sample of the float64 reference");
  EXPECT_FALSE(right.failed());
  EXPECT_TRUE(right.text().starts_with("out 0.00")) << right.text();
  for (std::int64_t i = 0; i < 64; ++i) call.find("out")->set(999 * 64 + i, 0);  // the last row
  EXPECT_TRUE(check_outputs(call, 1).failed());
}

TEST(BenchCheck, WhatCannotBeSampledIsSaid) {
  spec::Case c = case_of(800);
  c.types["Es"] = "f32";
  c.dims["A"] = std::int64_t{2};
  c.given = {"softmax_aux", "dsoftmax_aux"};
  const auto call = reference::make_call(reference::spec_of("flash_attention_bwd"), c, 1);  // nobody wrote its outputs
  const auto check = check_outputs(call, 1);
  EXPECT_EQ(check.outputs.size(), 3u);
  EXPECT_TRUE(check.failed());
  EXPECT_NE(check_lines("large", check, "")
                .find("large: not compared: dsoftmax_aux cannot be sampled, and the call is too large for the whole reference\n"),
            std::string::npos);
}

}  // namespace
}  // namespace ejk::tools
