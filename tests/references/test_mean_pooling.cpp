// The mean pooling references against hand-computed numbers and against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "references/calls.hpp"

namespace ejk::reference::mean_pooling_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

Numbers pooled(Attributes attributes, std::vector<HostTensor> inputs) {
  return compute(make_call(spec_of("mean_pooling"), std::move(attributes), std::move(inputs), {})).at("out");
}

TEST(MeanPooling, MeansAreOverTheTokensOfEachSequence) {
  EXPECT_EQ(pooled({}, {f32("x", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}), (Numbers{2, 3, 6, 7}));
}

TEST(MeanPooling, OnlyVisibleTokensCountAndNoneGivesZero) {
  const HostTensor mask("mask", DType::boolean, {2, 3}, Numbers{1, 0, 1, 0, 0, 0});
  EXPECT_EQ(pooled({}, {f32("x", {2, 3, 1}, {1, NAN, 5, NAN, NAN, NAN}), mask}), (Numbers{3, 0}));
}

TEST(MeanPooling, TheLastChunkHasItsTrueLength) {
  EXPECT_EQ(pooled({{"chunk_size", std::int64_t{2}}}, {f32("x", {1, 5, 1}, {1, 3, 5, 7, 9})}), (Numbers{2, 6, 9}));
}

TEST(MeanPooling, PackedSequencesFollowTheirOffsetsAndEmptyOnesGiveZero) {
  const HostTensor offsets("cum_seqlens", DType::i32, {4}, Numbers{0, 2, 2, 3});
  EXPECT_EQ(pooled({}, {f32("x", {4, 1}, {1, 2, 5, NAN}), offsets}), (Numbers{1.5, 0, 5}));
}

TEST(MeanPooling, PackedChunksComeInTheOrderOfTheSequences) {
  // cum_seqlens [0, 3, 4, 8, 10] with chunks of 2 is the example of the sequence helpers: lengths 3, 1, 4, 2 give 2 + 1 + 2 + 1 chunks.
  const HostTensor offsets("cum_seqlens", DType::i32, {5}, Numbers{0, 3, 4, 8, 10});
  Numbers x(10);
  std::iota(x.begin(), x.end(), 0);
  EXPECT_EQ(pooled({{"chunk_size", std::int64_t{2}}}, {f32("x", {10, 1}, x), offsets}), (Numbers{0.5, 2, 3, 4.5, 6.5, 8.5}));
}

TEST(MeanPooling, TrailingDimensionsAreFeatures) {
  EXPECT_EQ(pooled({}, {f32("x", {1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7})}), (Numbers{2, 3, 4, 5}));
  EXPECT_EQ(pooled({}, {f32("x", {1, 2}, {1, 2})}), (Numbers{1.5}));
}

TEST(MeanPoolingBackward, VisibleTokensShareTheGradientAndOthersGetZero) {
  const HostTensor mask("mask", DType::boolean, {2, 3}, Numbers{1, 0, 1, 0, 0, 0});
  const Call call = make_call(spec_of("mean_pooling_bwd"), {{"tokens", std::int64_t{3}}}, {f32("dout", {2, 1}, {6, 8}), mask}, {});
  EXPECT_EQ(compute(call).at("dx"), (Numbers{3, 0, 3, 0, 0, 0}));
}

TEST(MeanPoolingBackward, IsTheTransposeOfTheForward) {
  // <dout, pool(x)> = <pool_bwd(dout), x> for all x and dout; pooling is linear, so this is the whole gradient.
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    spec::Case c = find_reference("mean_pooling")->random_case(rng);
    c.types["E"] = "f32";
    const Call forward = make_call(spec_of("mean_pooling"), c, seed);
    const Numbers out = compute(forward).at("out"), x = forward.input("x").values();
    const HostTensor& out_tensor = forward.input("out");
    Numbers dout(out.size());
    for (double& value : dout) value = std::round(64 * rng.normal()) / 64;
    std::vector<HostTensor> inputs{HostTensor("dout", DType::f32, out_tensor.shape(), dout)};
    for (const char* name : {"mask", "cum_seqlens"})
      if (forward.given(name)) inputs.push_back(forward.input(name));
    Attributes attributes = forward.attributes;
    attributes["tokens"] = forward.input("x").shape()[forward.given("cum_seqlens") ? 0 : 1];
    const Call backward = make_call(spec_of("mean_pooling_bwd"), attributes, std::move(inputs), {});
    const Numbers dx = compute(backward).at("dx");
    ASSERT_EQ(dx.size(), x.size()) << forward.label;
    const double left = std::inner_product(out.begin(), out.end(), dout.begin(), 0.0);
    const double right = std::inner_product(x.begin(), x.end(), dx.begin(), 0.0);
    EXPECT_NEAR(left, right, 1e-9 * (1 + std::fabs(left))) << forward.label;
  }
}

TEST(MeanPooling, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("mean_pooling", 100, 60); }
TEST(MeanPoolingBackward, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("mean_pooling_bwd", 200, 60); }

TEST(MeanPooling, AKernelThatReadsMaskedTokensIsCaught) {
  const Execute careless = [](Call& call) {
    Call blind = call;
    HostTensor& mask = blind.input("mask");
    for (std::int64_t i = 0; i < mask.elements(); ++i) mask.set(i, 1);
    call.find("out")->assign(compute(blind).at("out"));
  };
  spec::Case c;
  c.name = "masked";
  c.types["E"] = "f32";
  c.dims = {{"B", std::int64_t{3}}, {"S", std::int64_t{40}}, {"C", std::int64_t{8}}};
  c.given = {"mask"};
  Call call = make_call(spec_of("mean_pooling"), c, 1);
  const KernelReference& reference = *find_reference("mean_pooling");
  EXPECT_NE(first_failure(verify_call(reference, call, careless)), "");
  Rng rng(1);
  bool caught = false;
  for (const PropertyResult& property : verify_properties(reference, call, careless, rng))
    caught = caught || (property.name.find("false mask") != std::string::npos && !property.message.empty());
  EXPECT_TRUE(caught);
}

}  // namespace
}  // namespace ejk::reference::mean_pooling_test
