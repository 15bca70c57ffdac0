// Several calls under one config on the device: folded ones have the bits of a loop, shards run on their own streams, calls are recorded
// with the archs that another machine needs to build for this one.
#include <cstring>
#include <random>

#include "device/fixture.hpp"

namespace ejk {
namespace {

// On the project's own kernels; the store is the process's first, so each test needs a process of its own.
class BatchOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    const auto added = add_store(source_folder());
    if (!added) GTEST_SKIP() << "needs a process of its own: " << added.error().message;
  }

  // Numbers in bf16 or f32, as 16 or 32 bits each.
  template <class T>
  static std::vector<T> values(std::size_t count) {
    std::mt19937 random(5);
    std::vector<T> result(count);
    for (auto& value : result) {
      const float number = std::uniform_real_distribution<float>(-1, 1)(random);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      value = static_cast<T>(sizeof(T) == 2 ? bits >> 16 : bits);
    }
    return result;
  }

  static TensorView shaped(const TensorView& flat, std::vector<std::int64_t> shape) {
    TensorView view(flat.data, flat.type, shape);
    view.device = flat.device;
    return view;
  }

  static TensorView part(const TensorView& view, std::int64_t index) {
    auto result = shaped(view, {view.shape + 1, view.shape + view.rank});
    result.data = static_cast<char*>(view.data) + index * view.strides[0] * size_of(view.type);
    return result;
  }

  // out is mapped and written twice.
  template <class T>
  static void same_as_loop(const std::string& kernel, std::map<std::string, TensorView> tensors, OnGpu<T>& out, const Values& attributes) {
    const auto count = static_cast<std::size_t>(tensors.at("out").elements());
    const auto report = vmap_with_config(kernel, tensors, attributes);
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->made, 1) << report->why_not_folded;
    Driver::instance().wait();
    const auto folded = out.values();
    out.set(std::vector<T>(count));
    for (std::int64_t i = 0; i < report->calls; ++i) {
      std::map<std::string, TensorView> one;
      for (const auto& [name, view] : tensors) one.emplace(name, part(view, i));
      const auto status = call(kernel, one, attributes, {}, &report->config);
      ASSERT_TRUE(status) << message_of(status);
    }
    Driver::instance().wait();
    EXPECT_EQ(out.values(), folded);
    EXPECT_NE(folded, std::vector<T>(count));
  }
};

TEST_F(BatchOnDevice, FoldedPoolingHasTheBitsOfALoop) {
  const OnGpu<std::uint32_t> x(values<std::uint32_t>(6 * 4 * 7 * 128));
  OnGpu<std::uint32_t> out(std::vector<std::uint32_t>(6 * 4 * 128));
  same_as_loop("mean_pooling", {{"x", shaped(x.view(), {6, 4, 7, 128})}, {"out", shaped(out.view(), {6, 4, 128})}}, out,
               {});  // short rows: a block has whole ones
}

TEST_F(BatchOnDevice, FoldedAttentionHasTheBitsOfALoop) {
  const OnGpu<std::uint16_t> q(values<std::uint16_t>(3 * 2 * 200 * 8 * 64)), k(values<std::uint16_t>(3 * 2 * 300 * 2 * 64));
  OnGpu<std::uint16_t> out(std::vector<std::uint16_t>(3 * 2 * 200 * 8 * 64));
  const auto keys = shaped(k.view(DType::bf16), {3, 2, 300, 2, 64});
  same_as_loop("flash_attention",
               {{"q", shaped(q.view(DType::bf16), {3, 2, 200, 8, 64})},
                {"k", keys},
                {"v", keys},
                {"out", shaped(out.view(DType::bf16), {3, 2, 200, 8, 64})}},
               out, {{"causal", true}});
}

TEST_F(BatchOnDevice, ShardsRunOnTheirStreams) {
  const OnGpu<std::uint32_t> x(values<std::uint32_t>(3 * 64 * 128));
  const OnGpu<std::uint32_t> out(std::vector<std::uint32_t>(3 * 128));
  const OwnStream streams[3];
  std::vector<Shard> shards;
  for (std::int64_t i = 0; i < 3; ++i)
    shards.push_back(
        {{{"x", part(shaped(x.view(), {3, 1, 64, 128}), i)}, {"out", part(shaped(out.view(), {3, 1, 128}), i)}}, {streams[i].handle}});
  const auto report = pmap_with_config("mean_pooling", shards);
  ASSERT_TRUE(report) << message_of(report);
  for (const auto& stream : streams) Driver::instance().wait(stream.handle);
  const auto found = out.values();
  const OnGpu<std::uint32_t> alone(std::vector<std::uint32_t>(3 * 128));
  for (std::int64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(call("mean_pooling",
                     {{"x", part(shaped(x.view(), {3, 1, 64, 128}), i)}, {"out", part(shaped(alone.view(), {3, 1, 128}), i)}}, {}, {},
                     &report->config));
  Driver::instance().wait();
  EXPECT_EQ(found, alone.values());
}

TEST_F(BatchOnDevice, ARecordedCallTellsWhatItsImageDependsOn) {
  const OnGpu<std::uint32_t> x(values<std::uint32_t>(64 * 128)), out(std::vector<std::uint32_t>(128));
  const recording scope;
  ASSERT_TRUE(call("mean_pooling", {{"x", shaped(x.view(), {1, 64, 128})}, {"out", shaped(out.view(), {1, 128})}}, {}));
  Driver::instance().wait();
  const auto heard = get_invocations(scope);
  ASSERT_EQ(heard.invocations.size(), 1u);
  EXPECT_TRUE(heard.invocations[0].invocation.device.starts_with("cuda-"));
  EXPECT_TRUE(heard.invocations[0].archs.at(0).starts_with("cuda:sm_"));
  EXPECT_TRUE(heard.invocations[0].properties.contains("sms"));
  const auto configs = labels_to_configs(std::vector<std::string>{*label(heard.invocations[0].invocation, Stamp::json)});
  ASSERT_TRUE((*configs)[0].selection) << (*configs)[0].why_not;
  EXPECT_EQ((*configs)[0].selection->config.variant, "gpu");
}

}  // namespace
}  // namespace ejk
