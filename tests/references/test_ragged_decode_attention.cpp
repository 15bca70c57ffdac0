// The ragged decode attention reference against hand-computed numbers, and the data of caches with bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "references/calls.hpp"

namespace ejk::reference::ragged_decode_attention_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

// One head, D = 1, scale 1, rows of four tokens: equal keys, so that out is the mean of the visible values.
std::vector<HostTensor> rows_of(const Numbers& starts, const Numbers& ends, const Numbers& values) {
  const auto count = static_cast<std::int64_t>(starts.size());
  return {f32("query", {count, 1, 1}, Numbers(starts.size(), 1)), f32("key", {count, 4, 1, 1}, Numbers(4 * starts.size(), 0)),
          f32("value", {count, 4, 1, 1}, values), HostTensor("sequence_start", DType::i32, {count}, starts),
          HostTensor("sequence_end", DType::i32, {count}, ends)};
}

Values attention(Attributes attributes, std::vector<HostTensor> inputs, std::vector<HostTensor> more = {}) {
  for (HostTensor& tensor : more) inputs.push_back(std::move(tensor));
  attributes.emplace("softmax_scale", 1.0);
  Call call = make_call(spec_of("ragged_decode_attention"), std::move(attributes), std::move(inputs), {"lse"});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

const Numbers row{1, 2, 4, nan};

TEST(RaggedDecodeAttention, EachSequenceHasTheKeysOfItsOwnBounds) {
  const Values found =
      attention({}, rows_of({0, 1, 2, 4, 3}, {3, 3, 2, 4, 1}, {1, 2, 4, nan, nan, 8, 16, nan, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_NEAR(found.at("out")[0], 7 / 3.0, 1e-12);
  EXPECT_NEAR(found.at("out")[1], 12, 1e-12);
  EXPECT_NEAR(found.at("lse")[1], std::log(2), 1e-12);
  for (std::size_t empty = 2; empty < 5; ++empty) {
    EXPECT_EQ(found.at("out")[empty], 0);
    EXPECT_EQ(found.at("lse")[empty], -infinity);
  }
}

TEST(RaggedDecodeAttention, AWindowEndsAtTheLastKeyAndStaysWithinTheBounds) {
  const auto with = [](std::int64_t left, double start) {
    return attention({{"window_left", left}}, rows_of({start}, {3}, row)).at("out")[0];
  };
  EXPECT_NEAR(with(0, 0), 4, 1e-12);
  EXPECT_NEAR(with(1, 0), 3, 1e-12);
  EXPECT_NEAR(with(1, 2), 4, 1e-12);
  EXPECT_NEAR(with(std::numeric_limits<std::int64_t>::max(), 1), 3, 1e-12);
  EXPECT_NEAR(attention({{"window_right", std::int64_t{0}}}, rows_of({1}, {3}, row)).at("out")[0], 3, 1e-12);
}

TEST(RaggedDecodeAttention, SinksTakeWeightAndAreAllThatASequenceWithoutKeysHas) {
  const Values found = attention({}, rows_of({1, 2}, {2, 2}, {1, 2, 4, nan, 1, 2, 4, 8}), {f32("softmax_aux", {1, 1}, {std::log(3)})});
  EXPECT_NEAR(found.at("out")[0], 0.5, 1e-6);
  EXPECT_NEAR(found.at("lse")[0], std::log(4), 1e-6);
  EXPECT_EQ(found.at("out")[1], 0);
  EXPECT_NEAR(found.at("lse")[1], std::log(3), 1e-6);
}

TEST(RaggedDecodeAttention, BoundsOutsideTheRowsAreRefused) {
  EXPECT_THROW(attention({}, rows_of({0}, {5}, row)), spec::CallError);
  EXPECT_THROW(attention({}, rows_of({-1}, {3}, row)), spec::CallError);
}

TEST(RaggedData, WhatLiesOutsideTheBoundsIsSpoiled) {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", "f16"}};
  for (const auto& [dim, size] : {std::pair{"B", 3}, {"S", 20}, {"Hq", 2}, {"Hkv", 2}, {"D", 4}, {"Dv", 3}})
    c.dims[dim] = std::int64_t{size};
  bool empty = false, full = false;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Call call = make_call(spec_of("ragged_decode_attention"), c, seed);
    const Numbers starts = call.input("sequence_start").values(), ends = call.input("sequence_end").values();
    for (const char* name : {"key", "value"}) {
      const Numbers values = call.input(name).values();
      const std::size_t token = values.size() / 60;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t n = i / token / 20;
        const auto t = static_cast<double>(i / token % 20);
        ASSERT_EQ(std::isnan(values[i]), t < starts[n] || t >= ends[n]) << name << ", sequence " << n << ", token " << t;
      }
    }
    for (std::size_t n = 0; n < 3; ++n) empty = empty || starts[n] >= ends[n], full = full || ends[n] - starts[n] == 20;
  }
  EXPECT_TRUE(empty && full);
}

TEST(RaggedDecodeAttention, RandomCallsPassTheirOwnChecks) { check_random_calls("ragged_decode_attention", 1, 40); }

}  // namespace
}  // namespace ejk::reference::ragged_decode_attention_test
