// pmap_with_config on the CPU and on the emulator's device: shards under one config, every error told.
#include "batch/batch_fixture.hpp"
#include "emulator/simt.hpp"

namespace ejk {
namespace {

class Pmap : public BatchTest {
 protected:
  void SetUp() override {
    add_backend(simt_backend());
    use_project_store();
  }
  Shard shard(std::int64_t s = 40, Device device = {}) {
    Shard result;
    result.tensors = {{"x", tensor(DType::f32, {2, s, 16})}, {"out", tensor(DType::f32, {2, 16})}};
    for (auto& [name, view] : result.tensors) view.device = device;
    return result;
  }
  // Each shard's result is what a call alone gives under that config.
  void expect_as_alone(const std::vector<Shard>& shards, const Config& config) {
    for (const auto& each : shards) {
      auto alone = each.tensors;
      alone["out"] = tensor(DType::f32, {2, 16});
      alone["out"].device = alone["x"].device;
      const auto status = call("mean_pooling", alone, {}, {}, &config);
      ASSERT_TRUE(status) << message_of(status);
      expect_equal(each.tensors.at("out"), alone["out"], "out");
    }
  }
};

TEST_F(Pmap, ShardsRunUnderOneConfig) {
  for (const int threads : {1, 3, 16}) {  // on the pool, and one after the other
    ASSERT_TRUE(set_threads(threads));
    std::vector<Shard> shards;
    for (int i = 0; i < 6; ++i) shards.push_back(shard());
    const auto report = pmap_with_config("mean_pooling", shards);
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->made, 6);
    EXPECT_EQ(report->config.variant, "rows");
    expect_as_alone(shards, report->config);
  }
}

TEST_F(Pmap, OnADeviceToo) {
  const Device device{DeviceType::extension, 0};
  const std::vector<Shard> shards{shard(40, device), shard(40, device)};  // the emulator's memory is the host's
  const auto report = pmap_with_config("mean_pooling", shards);
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->config.variant, "gpu");
  expect_as_alone(shards, report->config);
}

TEST_F(Pmap, EveryErrorIsTold) {
  ASSERT_TRUE(set_threads(2));
  for (const int count : {3, 1}) {  // on the pool; alone
    std::vector<Shard> shards;
    for (int i = 0; i < count; ++i) {
      shards.push_back(shard());
      auto& offsets = shards.back().tensors["cum_seqlens"] = tensor(DType::i32, {3});
      shards.back().tensors["x"] = tensor(DType::f32, {40, 16});
      static_cast<std::int32_t*>(offsets.data)[0] = i == 1 ? 0 : 7 + i;
      static_cast<std::int32_t*>(offsets.data)[1] = static_cast<std::int32_t*>(offsets.data)[2] = 20;
    }
    const auto message = message_of(pmap_with_config("mean_pooling", shards));
    if (count == 3)
      EXPECT_EQ(
          message,
          "2 of 3 shards failed:\n  shard 0: mean_pooling: cum_seqlens must start at 0; found 7\n  shard 2: mean_pooling: cum_seqlens must "
          "start at 0; found 9");
    else
      EXPECT_EQ(message, "1 of 1 shards failed:\n  shard 0: mean_pooling: cum_seqlens must start at 0; found 7");
  }
}

TEST_F(Pmap, ShardsMustBeAlike) {
  const auto fault = [](const std::vector<Shard>& shards) { return message_of(pmap_with_config("mean_pooling", shards)); };
  EXPECT_EQ(
      fault({shard(40), shard(41)}),
      "shard 1: x is f32 [2, 41, 16] of strides [656, 16, 1], but f32 [2, 40, 16] of strides [640, 16, 1] in shard 0; all shards must be "
      "alike");
  auto lacks = shard();
  lacks.tensors.erase("out");
  EXPECT_EQ(fault({shard(), lacks}), "shard 1 lacks out, which shard 0 has");
  EXPECT_EQ(fault({lacks, shard()}), "shard 1 has out, which shard 0 has not");
  const auto mixed = fault({shard(), shard(40, {DeviceType::extension, 0})});
  EXPECT_TRUE(mixed.starts_with("mean_pooling: shard 1 is on a simt-warp32, but shard 0 on a cpu-")) << mixed;
  auto twin = shard();
  const auto first = shard();
  twin.tensors["out"] = first.tensors.at("out");
  EXPECT_EQ(fault({first, twin}), "mean_pooling: output out of shard 1 is memory that shard 0 writes too");
  EXPECT_EQ(fault({}), "");
}

TEST_F(Pmap, AScopeHearsEachShardOnce) {
  ASSERT_TRUE(set_threads(2));
  const std::vector<Shard> shards{shard(), shard(), shard()};
  const recording scope;
  ASSERT_TRUE(pmap_with_config("mean_pooling", shards));
  ASSERT_EQ(get_invocations(scope).invocations.size(), 1u);
  EXPECT_EQ(get_invocations(scope).invocations[0].count, 3u);
  ASSERT_TRUE(call("mean_pooling", shards[0].tensors, {}));
  EXPECT_EQ(get_invocations(scope).invocations[0].count, 4u) << "the scope is open again";
}

// The GPU variants' own words on folding, held against a loop.
class VmapOnTheEmulator : public Pmap {
 protected:
  TensorView on_device(DType type, std::vector<std::int64_t> shape) {
    auto view = tensor(type, std::move(shape));
    view.device = {DeviceType::extension, 0};
    return view;
  }
};

TEST_F(VmapOnTheEmulator, FoldsBitForBit) {
  for (const bool strided : {false, true}) {
    const Config config{strided ? "gpu_strided" : "gpu", "", {}};
    for (const std::int64_t s : {5, 24, 100}) {
      const auto report =
          same_as_loop("mean_pooling", {{"x", on_device(DType::f32, {3, 2, s, 24})}, {"out", on_device(DType::f32, {3, 2, 24})}}, {"out"},
                       {}, {}, &config);
      EXPECT_TRUE(report.made == 1 || (!strided && s == 100)) << report.why_not_folded;
    }
    EXPECT_EQ(same_as_loop("mean_pooling_bwd", {{"dout", on_device(DType::f32, {3, 2, 24})}, {"dx", on_device(DType::f32, {3, 2, 30, 24})}},
                           {"dx"}, {}, {}, &config)
                  .made,
              1);
  }
}

// The first call alone would take packs of four, which the second one's address forbids.
TEST_F(VmapOnTheEmulator, TheConfigServesTheLeastAlignedCall) {
  auto x = tensor(DType::f32, {4, 2, 7, 32}, {449, 224, 32, 1});
  x.device = {DeviceType::extension, 0};
  const auto report = same_as_loop("mean_pooling", {{"x", x}, {"out", on_device(DType::f32, {4, 2, 32})}}, {"out"});
  EXPECT_EQ(report.made, 4);
  EXPECT_EQ(report.config.values.at("vec"), Value(std::int64_t{1}));
}

TEST_F(VmapOnTheEmulator, LongRowsOfTheGpuVariantLoop) {
  const auto report =
      same_as_loop("mean_pooling", {{"x", on_device(DType::f32, {2, 1, 3000, 8})}, {"out", on_device(DType::f32, {2, 1, 8})}}, {"out"});
  EXPECT_EQ(report.made, 2);
  EXPECT_NE(report.why_not_folded.find("does not hold"), std::string::npos) << report.why_not_folded;
}

TEST_F(VmapOnTheEmulator, AttentionFoldsBitForBit) {
  for (const auto* variant : {"mma", "gpu_plain"}) {
    const Config config{variant, "", {}};
    const auto report = same_as_loop("flash_attention",
                                     {{"q", on_device(DType::bf16, {2, 2, 20, 2, 16})},
                                      {"k", on_device(DType::bf16, {2, 2, 40, 1, 16})},
                                      {"v", on_device(DType::bf16, {2, 2, 40, 1, 16})},
                                      {"out", on_device(DType::bf16, {2, 2, 20, 2, 16})}},
                                     {"out"}, {{"causal", true}}, {}, &config);
    EXPECT_EQ(report.made, 1) << report.why_not_folded;
    EXPECT_EQ(report.config.variant, variant);
  }
}

}  // namespace
}  // namespace ejk
