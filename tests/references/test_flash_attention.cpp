// The flash attention reference against hand-computed numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/philox.hpp"
#include "references/calls.hpp"

namespace ejk::reference::flash_attention_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

// One batch row, one head, D = Dv = 1, scale 1: q and k of zeros give equal weights, so out is the mean of the visible values.
std::vector<HostTensor> plain(const Numbers& q, const Numbers& k, const Numbers& v) {
  const auto sq = static_cast<std::int64_t>(q.size()), sk = static_cast<std::int64_t>(k.size());
  return {f32("q", {1, sq, 1, 1}, q), f32("k", {1, sk, 1, 1}, k), f32("v", {1, sk, 1, 1}, v)};
}

Values attention(Attributes attributes, std::vector<HostTensor> inputs, std::vector<HostTensor> more = {}) {
  for (HostTensor& tensor : more) inputs.push_back(std::move(tensor));
  attributes.emplace("softmax_scale", 1.0);
  return compute(make_call(spec_of("flash_attention"), std::move(attributes), std::move(inputs), {"lse"}));
}

void expect_near(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(found[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
    }
  }
}

TEST(FlashAttention, WeightsAreTheSoftmaxOfTheScores) {
  const Values values = attention({}, plain({1}, {0, std::log(2), std::log(5)}, {1, 10, 100}));
  EXPECT_NEAR(values.at("out")[0], (1 + 20 + 500) / 8.0, 1e-4);  // the inputs are rounded to f32
  EXPECT_NEAR(values.at("lse")[0], std::log(8), 1e-6);
}

TEST(FlashAttention, CausalLetsTheLastQuerySeeTheLastKey) {
  expect_near(attention({{"causal", true}}, plain({0, 0}, {0, 0, 0}, {3, 6, 12})).at("out"), {4.5, 7});
}

TEST(FlashAttention, AQueryBeforeAllKeysGivesZeroAndMinusInfinity) {
  const Values values = attention({{"causal", true}}, plain({0, 0, 0}, {0}, {3}));
  expect_near(values.at("out"), {0, 0, 3});
  expect_near(values.at("lse"), {-infinity, -infinity, 0});
}

TEST(FlashAttention, OffsetZeroAlignsTheFirstQueryWithTheFirstKey) {
  expect_near(attention({{"causal", true}, {"causal_offset", std::int64_t{0}}}, plain({0, 0}, {0, 0, 0}, {3, 6, 12})).at("out"), {3, 4.5});
}

TEST(FlashAttention, AWindowOfZeroZeroIsOneKey) {
  expect_near(
      attention({{"window_left", std::int64_t{0}}, {"window_right", std::int64_t{0}}}, plain({0, 0, 0}, {0, 0, 0}, {3, 6, 12})).at("out"),
      {3, 6, 12});
}

TEST(FlashAttention, WindowsAreInclusiveAndFollowTheOffset) {
  const Attributes window{{"window_left", std::int64_t{1}}, {"window_right", std::int64_t{-1}}};
  expect_near(attention(window, plain({0, 0}, {0, 0, 0, 0}, {1, 2, 4, 8})).at("out"), {(2 + 4 + 8) / 3.0, 6});
  const Attributes cut{{"window_left", std::int64_t{1}}, {"window_right", std::int64_t{5}}, {"causal", true}};
  expect_near(attention(cut, plain({0, 0}, {0, 0, 0, 0}, {1, 2, 4, 8})).at("out"), {3, 6});
}

TEST(FlashAttention, AnUnboundedWindowAsALargeNumberSeesAll) {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  expect_near(attention({{"window_left", large}, {"window_right", large}}, plain({0}, {0, 0}, {1, 2})).at("out"), {1.5});
}

TEST(FlashAttention, TheCapBendsScoresBeforeTheBias) {
  const HostTensor bias = f32("bias", {1, 1, 1, 2}, {0, 3});
  const Values values = attention({{"logits_soft_cap", 2.0}}, plain({4}, {1, 0}, {1, 0}), {bias});
  const double a = std::exp(2 * std::tanh(4 / 2.0)), b = std::exp(3.0);
  EXPECT_NEAR(values.at("out")[0], a / (a + b), 1e-12);
  EXPECT_NEAR(values.at("lse")[0], std::log(a + b), 1e-12);
}

TEST(FlashAttention, ABiasOfMinusInfinityEverywhereSeesNothing) {
  const Values values = attention({}, plain({1}, {1, 2}, {5, 6}), {f32("bias", {1, 1, 1, 2}, {-infinity, -infinity})});
  expect_near(values.at("out"), {0});
  expect_near(values.at("lse"), {-infinity});
}

TEST(FlashAttention, ABiasOfTheLowestFiniteNumberIsSharedAndLeavesOtherKeysAlone) {
  const double lowest = -std::numeric_limits<float>::max(), least = -0x1p40;
  const Values all = attention({}, plain({1}, {100, 0, -3}, {5, 6, 1}), {f32("bias", {1, 1, 1, 3}, {lowest, lowest, lowest})});
  expect_near(all.at("out"), {4});
  expect_near(all.at("lse"), {least + std::log(3)});
  const Values some = attention({}, plain({1}, {9, 0, -3}, {5, 6, 1}), {f32("bias", {1, 1, 1, 3}, {lowest, -infinity, lowest})});
  expect_near(some.at("out"), {3});
  const Values beside = attention({}, plain({0}, {9, 0, 0}, {5, 6, 1}), {f32("bias", {1, 1, 1, 3}, {lowest, 0, 0})});
  expect_near(beside.at("out"), {3.5});
  expect_near(beside.at("lse"), {std::log(2)});
}

TEST(FlashAttention, MaskedKeysDoNotCountEvenNaN) {
  const HostTensor mask("attention_mask", DType::boolean, {1, 1, 2, 2}, Numbers{1, 0, 0, 0});
  const Values values = attention({}, plain({0, 0}, {0, NAN}, {7, NAN}), {mask});
  expect_near(values.at("out"), {7, 0});
  expect_near(values.at("lse"), {0, -infinity});
}

TEST(FlashAttention, AVisibleNaNReachesItsRow) {
  const Values values = attention({{"causal", true}}, plain({0, 0}, {0, NAN}, {7, 1}));
  EXPECT_EQ(values.at("out")[0], 7);
  EXPECT_TRUE(std::isnan(values.at("out")[1]) && std::isnan(values.at("lse")[1]));
}

TEST(FlashAttention, SegmentsMeetTheirOwnAndPaddingMeetsNobody) {
  const HostTensor q_ids("q_segment_ids", DType::i32, {1, 3}, Numbers{0, 1, -1});
  const HostTensor kv_ids("kv_segment_ids", DType::i32, {1, 4}, Numbers{0, 1, 1, -1});
  expect_near(attention({}, plain({0, 0, 0}, {0, 0, 0, 0}, {1, 2, 4, 8}), {q_ids, kv_ids}).at("out"), {1, 3, 0});
}

TEST(FlashAttention, SinksJoinTheDenominatorOnceWithoutValueScaleOrCap) {
  const HostTensor shared = f32("softmax_aux", {2}, {0, 0});  // Hq is 1, so a vector of two is shared
  const Values values = attention({{"logits_soft_cap", 0.5}, {"softmax_scale", 9.0}}, plain({0}, {0}, {6}), {shared});
  expect_near(values.at("out"), {2});
  expect_near(values.at("lse"), {std::log(3)});
  const HostTensor mask("attention_mask", DType::boolean, {1, 1, 1, 1}, Numbers{0});
  const Values unseen = attention({}, plain({0}, {0}, {6}), {shared, mask});
  expect_near(unseen.at("out"), {0});
  expect_near(unseen.at("lse"), {std::log(2)});
}

TEST(FlashAttention, SinksOfEachShapeReachTheirHeads) {
  const auto with = [](const HostTensor& aux) {
    const Numbers zeros{0, 0};
    return attention({}, {f32("q", {1, 1, 2, 1}, zeros), f32("k", {1, 1, 1, 1}, {0}), f32("v", {1, 1, 1, 1}, {12})}, {aux}).at("out");
  };
  expect_near(with(f32("softmax_aux", {2}, {0, -infinity})), {6, 12});          // a vector of length Hq: one a head
  expect_near(with(f32("softmax_aux", {3}, {0, 0, -infinity})), {4, 4});        // any other length: shared
  expect_near(with(f32("softmax_aux", {2, 2}, {0, 0, 0, -infinity})), {4, 6});  // [Hq, n]
}

TEST(FlashAttention, QueryHeadsShareKeyHeadsInGroups) {
  const Numbers zeros(4, 0);
  const Values values = attention({}, {f32("q", {1, 1, 4, 1}, zeros), f32("k", {1, 1, 2, 1}, {0, 0}), f32("v", {1, 1, 2, 1}, {3, 5})});
  expect_near(values.at("out"), {3, 3, 5, 5});
}

TEST(FlashAttention, BiasBroadcastsOverBatchAndHeads) {
  const Numbers zeros(4, 0);
  const std::vector<HostTensor> inputs{f32("q", {2, 1, 2, 1}, zeros), f32("k", {2, 2, 1, 1}, zeros), f32("v", {2, 2, 1, 1}, {1, 2, 3, 4})};
  expect_near(attention({}, inputs, {f32("bias", {1, 2, 1, 2}, {0, -infinity, -infinity, 0})}).at("out"), {1, 2, 3, 4});
  expect_near(attention({}, inputs, {f32("bias", {2, 1, 1, 2}, {0, -infinity, -infinity, 0})}).at("out"), {1, 1, 4, 4});
}

TEST(FlashAttention, TheDefaultScaleIsOneOverTheRootOfD) {
  const Call call =
      make_call(spec_of("flash_attention"), Attributes{},
                {f32("q", {1, 1, 1, 4}, {2, 2, 2, 2}), f32("k", {1, 1, 1, 4}, {1, 1, 1, 1}), f32("v", {1, 1, 1, 1}, {1})}, {"lse"});
  EXPECT_NEAR(compute(call).at("lse")[0], 4, 1e-12);
}

TEST(FlashAttention, PackedSequencesKeepToThemselves) {
  const HostTensor q_offsets("cum_seqlens_q", DType::i32, {4}, Numbers{0, 1, 1, 3}),
      k_offsets("cum_seqlens_k", DType::i32, {4}, Numbers{0, 2, 3, 5});
  const std::vector<HostTensor> inputs{f32("q", {4, 1, 1}, {0, 0, 0, 0}), f32("k", {6, 1, 1}, {0, 0, 0, 0, 0, NAN}),
                                       f32("v", {6, 1, 1}, {1, 3, 100, 5, 9, NAN}), q_offsets, k_offsets};
  const Values values = attention({{"causal", true}}, inputs, {f32("softmax_aux", {2}, {-infinity, -infinity})});
  expect_near(values.at("out"), {2, 5, 7, 0});
  expect_near(values.at("lse"), {std::log(2), 0, std::log(2), -infinity});
}

TEST(FlashAttention, TokensInNoSequenceHaveNoSinksEither) {
  const HostTensor q_offsets("cum_seqlens_q", DType::i32, {2}, Numbers{0, 1}), k_offsets("cum_seqlens_k", DType::i32, {2}, Numbers{0, 0});
  const std::vector<HostTensor> inputs{f32("q", {2, 1, 1}, {0, 0}), f32("k", {0, 1, 1}, {}), f32("v", {0, 1, 1}, {}), q_offsets, k_offsets};
  expect_near(attention({}, inputs, {f32("softmax_aux", {2}, {0, 0})}).at("lse"), {std::log(2), -infinity});
}

TEST(FlashAttention, DropoutActsOnTheWeightsAndNotOnTheLse) {
  const std::int64_t seed = -77;
  const Numbers zeros(10, 0), ones(10, 1);
  const Values values = attention({{"dropout_prob", 0.5}, {"dropout_seed", seed}}, plain({0, 0}, zeros, ones));
  const Dropout dropout(0.5, static_cast<std::uint64_t>(seed));
  for (std::int64_t i = 0; i < 2; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 10; ++j) sum += 0.1 * dropout.factor(0, i, j);
    EXPECT_NEAR(values.at("out")[static_cast<std::size_t>(i)], sum, 1e-12);
    EXPECT_NEAR(values.at("lse")[static_cast<std::size_t>(i)], std::log(10), 1e-12);
  }
}

TEST(FlashAttention, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("flash_attention", 300, 25); }

TEST(FlashAttention, AKernelThatLooksAheadIsCaught) {
  const Execute careless = [](Call& call) {
    Call ahead = call;
    ahead.attributes["causal"] = false;
    ahead.rebind();
    const Values values = compute(ahead);
    for (HostTensor& output : call.outputs) output.assign(values.at(output.name()));
  };
  spec::Case c;
  c.name = "causal";
  c.types["E"] = "bf16";
  c.attributes["causal"] = true;
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"Sq", 20}, {"Sk", 20}, {"Hq", 2}, {"Hkv", 1}, {"D", 16}, {"Dv", 16}})
    c.dims[dim] = std::int64_t{size};
  Call call = make_call(spec_of("flash_attention"), c, 1);
  const KernelReference& reference = *find_reference("flash_attention");
  EXPECT_NE(first_failure(verify_call(reference, call, careless)), "");
  Rng rng(1);
  std::vector<std::string> caught;
  for (const PropertyResult& property : verify_properties(reference, call, careless, rng))
    if (!property.message.empty()) caught.push_back(property.name);
  EXPECT_EQ(caught, (std::vector<std::string>{"a NaN in a key reaches the queries that see it and no other",
                                              "scores may grow along the keys", "later keys do not change earlier queries"}));
}

TEST(FlashAttention, VariedCasesKeepWhatAnImageIsMadeFor) {
  const KernelReference& reference = *find_reference("flash_attention");
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const spec::Case c = reference.random_case(rng), varied = reference.vary(c, rng);
    EXPECT_EQ(c.types, varied.types);
    EXPECT_EQ(c.given, varied.given);
    EXPECT_EQ(c.dims.at("D"), varied.dims.at("D"));
    EXPECT_EQ(c.dims.at("Dv"), varied.dims.at("Dv"));
    EXPECT_EQ(c.attributes.size(), varied.attributes.size());
  }
}

}  // namespace
}  // namespace ejk::reference::flash_attention_test
