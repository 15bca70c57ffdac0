// vmap_with_config on the CPU: folded where spec and strides allow it, a loop elsewhere, the same bits always.
#include "batch/batch_fixture.hpp"

namespace ejk {
namespace {

class Vmap : public BatchTest {
 protected:
  void SetUp() override { use_project_store(); }

  // N calls of mean_pooling on [B, S, C].
  std::map<std::string, TensorView> pooling(std::int64_t n, std::int64_t b, std::int64_t s, std::int64_t c) {
    return {{"x", tensor(DType::f32, {n, b, s, c})}, {"out", tensor(DType::f32, {n, b, c})}};
  }
  std::map<std::string, TensorView> attention(std::int64_t n, std::int64_t b, std::int64_t sq, std::int64_t sk) {
    return {{"q", tensor(DType::f32, {n, b, sq, 4, 32})},
            {"k", tensor(DType::f32, {n, b, sk, 2, 32})},
            {"v", tensor(DType::f32, {n, b, sk, 2, 32})},
            {"out", tensor(DType::f32, {n, b, sq, 4, 32})}};
  }
};

TEST_F(Vmap, ContiguousCallsAreOneLaunch) {
  const auto plans = counters().plans;
  const auto tensors = pooling(5, 3, 40, 48);
  const auto report = vmap_with_config("mean_pooling", tensors);
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->made, 1) << report->why_not_folded;
  EXPECT_EQ(counters().plans, plans + 1);
  EXPECT_EQ(report->config.variant, "rows");
  EXPECT_FALSE(report->config.values.empty()) << "the whole config is told";
  EXPECT_EQ(same_as_loop("mean_pooling", tensors, {"out"}).calls, 5);
}

TEST_F(Vmap, EveryKernelFoldsBitForBit) {
  auto masked = pooling(4, 2, 37, 20);
  masked["mask"] = tensor(DType::boolean, {4, 2, 37});
  EXPECT_EQ(same_as_loop("mean_pooling", masked, {"out"}).made, 1);
  auto chunks = pooling(4, 2, 37, 20);
  chunks["out"] = tensor(DType::f32, {4, 2, 5, 20});
  EXPECT_EQ(same_as_loop("mean_pooling", chunks, {"out"}, {{"chunk_size", std::int64_t{8}}}).made, 1);
  EXPECT_EQ(
      same_as_loop("mean_pooling_bwd", {{"dout", tensor(DType::f32, {4, 2, 20})}, {"dx", tensor(DType::f32, {4, 2, 37, 20})}}, {"dx"}).made,
      1);
  for (const bool causal : {false, true}) {
    auto tensors = attention(3, 2, 33, 65);
    tensors["lse"] = tensor(DType::f32, {3, 2, 4, 33});
    const auto report = same_as_loop("flash_attention", tensors, {"out", "lse"}, {{"causal", causal}});
    EXPECT_EQ(report.made, 1) << report.why_not_folded;
    EXPECT_EQ(report.config.variant, "tiled");
  }
}

TEST_F(Vmap, EveryVariantOfAttentionFoldsBitForBit) {
  const Config plain{"plain", "", {}};
  const auto report = same_as_loop("flash_attention", attention(3, 2, 9, 17), {"out"}, {}, {}, &plain);
  EXPECT_EQ(report.made, 1) << report.why_not_folded;
  EXPECT_EQ(report.config.variant, "plain");
}

// Long rows are summed in parts, as many as there are threads for: more rows, fewer parts, other bits.
TEST_F(Vmap, WhereTheBitsWouldDifferItLoops) {
  ASSERT_TRUE(set_threads(4));
  const auto report = same_as_loop("mean_pooling", pooling(4, 1, 4096, 16), {"out"});
  EXPECT_EQ(report.made, 4);
  EXPECT_EQ(report.why_not_folded, "`splits` would be 2, and is 8 for a call alone: the bits could differ");
}

TEST_F(Vmap, OtherAxesAreMappedByStrides) {
  // [B, N, S, C] with B = 1: the axis is the stride of B.
  EXPECT_EQ(same_as_loop("mean_pooling", {{"x", tensor(DType::f32, {1, 6, 10, 16})}, {"out", tensor(DType::f32, {6, 1, 16})}}, {"out"}, {},
                         {{"x", 1}})
                .made,
            1);
  // Calls lie inside B: [B, N, ...] is no single dimension of N times B.
  const auto inner = same_as_loop("mean_pooling", {{"x", tensor(DType::f32, {2, 6, 10, 16})}, {"out", tensor(DType::f32, {6, 2, 16})}},
                                  {"out"}, {}, {{"x", 1}});
  EXPECT_EQ(inner.made, 6);
  EXPECT_EQ(inner.why_not_folded, "the mapped axis of x (stride 160) and B (2 of stride 960) are not one strided dimension");
  // The output's axis too, and a negative one.
  EXPECT_EQ(same_as_loop("mean_pooling", {{"x", tensor(DType::f32, {6, 2, 10, 16})}, {"out", tensor(DType::f32, {2, 6, 16})}}, {"out"}, {},
                         {{"out", -2}})
                .made,
            6);
}

TEST_F(Vmap, CallsWithGapsFoldWhereBIsOne) {
  const auto x = tensor(DType::f32, {4, 1, 10, 16}, {500, 160, 16, 1});
  EXPECT_EQ(same_as_loop("mean_pooling", {{"x", x}, {"out", tensor(DType::f32, {4, 1, 16})}}, {"out"}).made, 1);
}

TEST_F(Vmap, TensorsThatAreSharedStayOrGetStrideZero) {
  // All calls see the same keys and values: B = 1, so stride 0 stands for them.
  auto tensors = attention(3, 1, 9, 17);
  tensors["k"] = tensor(DType::f32, {1, 17, 2, 32});
  tensors["v"] = tensor(DType::f32, {1, 17, 2, 32});
  const Axes shared{{"k", std::nullopt}, {"v", std::nullopt}};
  const auto one = same_as_loop("flash_attention", tensors, {"out"}, {}, shared);
  EXPECT_EQ(one.made, 1) << one.why_not_folded;
  // With B = 2 they would have to repeat.
  auto two = attention(3, 2, 9, 17);
  two["k"] = tensor(DType::f32, {2, 17, 2, 32});
  const auto loop = same_as_loop("flash_attention", two, {"out"}, {}, {{"k", std::nullopt}});
  EXPECT_EQ(loop.made, 3);
  EXPECT_EQ(loop.why_not_folded, "k is shared by the calls, but has 2 entries of B");
  // A bias of one batch entry broadcasts as it is; sinks have no batch dim at all.
  auto broadcast = attention(3, 2, 9, 17);
  broadcast["bias"] = tensor(DType::f32, {1, 4, 9, 17});
  broadcast["softmax_aux"] = tensor(DType::f32, {4, 2});
  const auto folded = same_as_loop("flash_attention", broadcast, {"out"}, {}, {{"bias", std::nullopt}, {"softmax_aux", std::nullopt}});
  EXPECT_EQ(folded.made, 1) << folded.why_not_folded;
  // Mapped ones cannot.
  broadcast["bias"] = tensor(DType::f32, {3, 1, 4, 9, 17});
  EXPECT_EQ(same_as_loop("flash_attention", broadcast, {"out"}, {}, {{"softmax_aux", std::nullopt}}).made, 3);
  broadcast.erase("bias");
  broadcast["softmax_aux"] = tensor(DType::f32, {3, 4, 2});
  EXPECT_EQ(same_as_loop("flash_attention", broadcast, {"out"}).why_not_folded, "softmax_aux is mapped, but has no dim B");
}

TEST_F(Vmap, DropoutDependsOnTheEntrySoItLoops) {
  const auto report =
      same_as_loop("flash_attention", attention(3, 2, 9, 17), {"out"}, {{"dropout_prob", 0.5}, {"dropout_seed", std::int64_t{3}}});
  EXPECT_EQ(report.made, 3);
  EXPECT_EQ(report.why_not_folded, "calls are not independent along B: `dropout_prob == 0` does not hold");
}

TEST_F(Vmap, AFormWithoutBatchDimLoops) {
  const auto offsets = block(DType::i32, {3});
  const std::int32_t bounds[] = {0, 10, 25};
  std::memcpy(offsets.view.data, bounds, sizeof bounds);
  const auto report = same_as_loop(
      "mean_pooling", {{"x", tensor(DType::f32, {4, 25, 16})}, {"cum_seqlens", offsets.view}, {"out", tensor(DType::f32, {4, 2, 16})}},
      {"out"}, {}, {{"cum_seqlens", std::nullopt}});
  EXPECT_EQ(report.made, 4);
  EXPECT_EQ(report.why_not_folded, "the call has no dim B");
}

// Calls at odd addresses: the config that is chosen must serve the least aligned of them.
TEST_F(Vmap, CallsOfDifferentAlignmentShareAConfig) {
  EXPECT_EQ(same_as_loop("mean_pooling", {{"x", tensor(DType::f32, {4, 2, 7, 5}, {71, 35, 5, 1})}, {"out", tensor(DType::f32, {4, 2, 5})}},
                         {"out"})
                .made,
            4);
}

TEST_F(Vmap, ACfgWinsForEveryCall) {
  const Config config{"rows", "cpu:generic", {{"block_c", std::int64_t{4096}}}};
  const auto report = same_as_loop("mean_pooling", pooling(3, 2, 8, 16), {"out"}, {}, {}, &config);
  EXPECT_EQ(report.config, config);
  EXPECT_EQ(report.made, 1);
  const Config wrong{"rows", "cpu:generic", {{"block_c", std::int64_t{7}}}};
  EXPECT_NE(message_of(vmap_with_config("mean_pooling", pooling(3, 2, 8, 16), {}, {}, {}, &wrong)).find("block_c"), std::string::npos);
}

TEST_F(Vmap, EmptyAndSingleMapsWork) {
  EXPECT_EQ(same_as_loop("mean_pooling", pooling(1, 2, 8, 16), {"out"}).made, 1);
  const auto none = vmap_with_config("mean_pooling", pooling(0, 2, 8, 16));
  ASSERT_TRUE(none) << message_of(none);
  EXPECT_EQ(none->made, 0);
  EXPECT_EQ(same_as_loop("mean_pooling", pooling(3, 0, 8, 16), {"out"}).calls, 3) << "no sequences";
}

TEST_F(Vmap, WhatMakesNoSenseIsRefused) {
  const auto fault = [](const auto& tensors, const Axes& axes = {}) {
    return message_of(vmap_with_config("mean_pooling", tensors, {}, axes));
  };
  auto tensors = pooling(3, 2, 8, 16);
  EXPECT_EQ(fault(tensors, {{"y", 0}}), "an axis is given for 'y', which is no tensor of the call");
  EXPECT_EQ(fault(tensors, {{"x", 4}}), "axis 4 of x is not there: it has 4 dimensions");
  EXPECT_EQ(fault(tensors, {{"x", -5}}), "axis -5 of x is not there: it has 4 dimensions");
  EXPECT_EQ(fault(tensors, {{"x", 1}}), "the mapped axis of x has 2 entries, but that of out has 3; all must have the same");
  EXPECT_EQ(fault(tensors, {{"out", std::nullopt}}), "output out must be mapped: each call writes its own part");
  auto same = tensors;
  same["out"].strides[0] = 0;
  EXPECT_EQ(fault(same), "the calls would all write the same memory: output out has stride 0 there");
  EXPECT_EQ(message_of(vmap_with_config("mean", tensors)).substr(0, 16), "no kernel 'mean'");
  same = tensors;
  same["x"].data = nullptr;
  EXPECT_NE(fault(same).find("x has no memory"), std::string::npos) << fault(same);
}

TEST_F(Vmap, AScopeHearsWhatWasReallyCalled) {
  const recording scope;
  ASSERT_TRUE(vmap_with_config("mean_pooling", pooling(5, 3, 40, 48)));
  const auto heard = get_invocations(scope);
  ASSERT_EQ(heard.invocations.size(), 1u);
  EXPECT_EQ(heard.invocations[0].invocation.tensors.at("x").shape[0], 15);
}

// No binary of the chosen config and no compiler: calls fall back as they do alone.
TEST_F(Vmap, WithoutACompilerItFallsBackAsACallDoes) {
  // mean_pooling's block_c = 256 is chosen for 16 features; only 4096 has a binary.
  const Config config{"rows", "cpu:generic", {{"block_c", std::int64_t{4096}}}};
  const auto tensors = pooling(3, 2, 8, 16);
  ASSERT_EQ(fork_and_wait([&] { return static_cast<bool>(vmap_with_config("mean_pooling", tensors, {}, {}, {}, &config)); }), 0);
  setenv("EJKERNEL_JIT", "off", 1);
  const auto report = vmap_with_config("mean_pooling", tensors);
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->why_not_folded, "no binary of the chosen config could be had");
  EXPECT_GT(counters().fallbacks, 0u);
}

}  // namespace
}  // namespace ejk
