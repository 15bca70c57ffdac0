// The config chain: each tier, in order, with provenance; on a kernel written in plain C++ and on a spec's.
#include "execute/recorder_kernel.hpp"
#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

TEST(Chain, FallsThroughToTheHeuristicAndSaysWhatEachTierSaid) {
  const ConfigSelectorChain chain;
  const auto selection = chain.select(Recorder(), invocation());
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->tier, Tier::heuristic);
  ASSERT_EQ(selection->trail.size(), 6u);
  EXPECT_EQ(selection->trail[0].detail, "the call gives no cfg");
  EXPECT_EQ(selection->trail[1].detail, "no scope is open");
  EXPECT_EQ(selection->trail[4].detail, "not asked: the policy takes the heuristic (cache_miss_fallback)");
}

TEST(Chain, OverrideWinsOverEverything) {
  const ConfigSelectorChain chain;
  const overlay_cache scope("recorder", Recorder::with(2));
  const auto cfg = Recorder::with(3);
  const auto selection = chain.select(Recorder(), invocation(), &cfg);
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->tier, Tier::override_);
  EXPECT_EQ(selection->config, cfg);
}

TEST(Chain, AnInvalidOverrideIsAnErrorNotASubstitution) {
  const auto cfg = Recorder::with(9);
  const auto selection = ConfigSelectorChain().select(Recorder(), invocation(), &cfg);
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().message, R"(recorder: this call's cfg: {"tile":9} cannot serve this call: it is not in the config space)");
}

TEST(Chain, OverlaysNestAndEnd) {
  const ConfigSelectorChain chain;
  const auto tile = [&] { return std::get<std::int64_t>(chain.select(Recorder(), invocation())->config.values.at("tile")); };
  {
    const overlay_cache outer("", Recorder::with(2));
    EXPECT_EQ(tile(), 2);
    {
      const overlay_cache inner("recorder", Recorder::with(3));
      EXPECT_EQ(tile(), 3);
      const overlay_cache other("another_kernel", Recorder::with(2));
      EXPECT_EQ(tile(), 3);
    }
    EXPECT_EQ(tile(), 2);
  }
  EXPECT_EQ(tile(), 1);
}

TEST(Chain, MemoryServesWhatWasRemembered) {
  ConfigSelectorChain chain;
  chain.memory().put(invocation().key(), Recorder::with(2));
  EXPECT_EQ(chain.select(Recorder(), invocation())->tier, Tier::memory);
  auto other = invocation();
  other.attributes["causal"] = true;
  EXPECT_EQ(chain.select(Recorder(), other)->tier, Tier::heuristic);
}

TEST(Chain, AnInvalidRememberedConfigIsPassedOverWithItsReason) {
  ConfigSelectorChain chain;
  chain.memory().put(invocation().key(), Recorder::with(9));
  const auto selection = chain.select(Recorder(), invocation());
  EXPECT_EQ(selection->tier, Tier::heuristic);
  EXPECT_NE(selection->trail[2].detail.find("it is not in the config space"), std::string::npos);
}

TEST(Executor, RunsAUsersKernelWithTheChosenConfig) {
  const Recorder kernel;
  const Executor executor(std::make_shared<ConfigSelectorChain>());
  ASSERT_TRUE(executor(kernel, invocation()));
  EXPECT_EQ(kernel.last, 1);
  const auto cfg = Recorder::with(3);
  ASSERT_TRUE(executor(kernel, invocation(), &cfg));
  EXPECT_EQ(kernel.last, 3);
}

class SpecKernels : public StoreTest {};

TEST_F(SpecKernels, RunThroughTheExecutorLikeAnyKernel) {
  use_test_store();
  const auto kernel = spec_kernel("shift");
  ASSERT_EQ(message_of(kernel), "");
  auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
  Invocation call;
  call.kernel = "shift";
  call.tensors = {{"x", x}, {"out", out}};
  EXPECT_EQ((*kernel)->config_space(call).size(), 3u) << "wide: 2 and 4 (8 is invalid for N = 4); any: 1";
  ASSERT_EQ(message_of(Executor()(**kernel, call)), "");
  EXPECT_EQ(out.data<float>()[0], 2.5f);
  const overlay_cache scope("shift", Config{"any", "", {}});
  const auto selection = Executor().choose(**kernel, call);
  ASSERT_EQ(message_of(selection), "");
  EXPECT_EQ(selection->tier, Tier::overlay);
}

TEST(ConfigJson, RoundTripsAndRefusesNonsense) {
  const auto config = config_from_json(R"({"variant": "tiled", "arch": "cpu:avx2", "block_m": 64, "packed": true})");
  ASSERT_TRUE(config);
  EXPECT_EQ(to_json(*config), R"({"arch":"cpu:avx2","block_m":64,"packed":true,"variant":"tiled"})");
  EXPECT_EQ(message_of(config_from_json("[1]")), R"(config: expected an object such as {"variant": "tiled", "block_m": 64}, found array)");
  EXPECT_TRUE(message_of(config_from_json("{")).starts_with("config:1:2: not JSON: ")) << message_of(config_from_json("{"));
  EXPECT_EQ(message_of(config_from_json(R"({"block_m": [1]})")), "config: 'block_m' must be a number, a boolean or a string; found array");
}

TEST(InvocationKey, HoldsShapesTypesAndAttributesButNoDataOrVaryingAttributes) {
  auto call = invocation();
  float data[6] = {};
  call.tensors["x"] = TensorView(data, DType::f32, {2, 3});
  call.attributes = {{"seed", std::int64_t{7}}, {"causal", true}};
  call.varying = {"seed"};
  EXPECT_EQ(call.key(), R"({"attributes":{"causal":true},"device":"cpu-test","kernel":"recorder","tensors":{"x":["f32",[2,3]]}})");
  const std::int64_t shape[] = {2, 3}, strides[] = {4, 1};
  call.tensors["x"] = TensorView(data, DType::f32, shape, strides);
  EXPECT_NE(call.key().find("[2,3],[4,1]"), std::string::npos);
}

}  // namespace
}  // namespace ejk
