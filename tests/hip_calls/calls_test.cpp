// Whole calls on tensors of a HIP device, over a fake libamdhip64 that records every call: what reaches it.
#include "backends/hip/hip_compile.hpp"
#include "ejk/ejk.hpp"
#include "execute/library_state.hpp"
#include "execute/store_fixture.hpp"
#include "hip/fake_hip.hpp"
#include "tests/paths.hpp"

namespace ejk::hip {
namespace {

// Devices of the fake: 0 is a gfx90a, 1 a gfx942.
class HipCalls : public StoreTest {
 protected:
  void SetUp() override {
    use_project_without_records();
    if (!clang_for("gfx942")->found()) GTEST_SKIP() << clang_for("gfx942")->why_not;
    FakeHip::reset();
    cuda::FakeDriver::instance().kernels = {"mean_pooling", "finish"};
    cuda::FakeDriver::instance().kernels_of_maps.clear();
  }

  Status pool(int device, void* stream = nullptr) {
    TensorView x(memory_, DType::f32, {2, 300, 16}), out(memory_ + 65536, DType::f32, {2, 16});
    x.device = out.device = {DeviceType::rocm, device};
    return call("mean_pooling", {{"x", x}, {"out", out}}, {}, {stream});
  }

  alignas(256) std::byte memory_[131072];
};

TEST_F(HipCalls, LaunchesReachDeviceAndStream) {
  int stream = 0;
  const auto status = pool(1, &stream);
  ASSERT_TRUE(status) << status.error().message;
  const auto& launches = cuda::FakeDriver::instance().launches;
  ASSERT_FALSE(launches.empty());
  EXPECT_EQ(launches[0].kernel, "mean_pooling");
  for (const auto& launch : launches) {
    EXPECT_EQ(launch.device, 1);
    EXPECT_EQ(launch.stream, reinterpret_cast<Stream>(&stream));
    EXPECT_EQ(launch.block[0] % 32, 0u);
  }
  EXPECT_EQ(FakeHip::instance().calls, std::vector<std::string>({"module on 1"}));
  EXPECT_TRUE(cuda::FakeDriver::instance().memory.empty()) << "the workspace went back";
}

TEST_F(HipCalls, EachDeviceGetsItsOwnArchsBinary) {
  ASSERT_TRUE(pool(0));
  ASSERT_TRUE(pool(1));
  ASSERT_TRUE(pool(1));
  EXPECT_EQ(FakeHip::instance().calls, std::vector<std::string>({"module on 0", "module on 1"}));
}

TEST_F(HipCalls, TensorsOfADeviceThatIsNotThereAreRefused) {
  const auto status = pool(5);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("hip:5"), std::string::npos) << status.error().message;
}

// A launch a step, from a workspace that one call of the library zeroes.
TEST_F(HipCalls, LaunchesOverTimeBeginWithZeros) {
  ASSERT_TRUE(add_store(test::source_dir() + "/tests/launches/data"));
  auto& fake = cuda::FakeDriver::instance();
  fake.kernels = {"advance", "finish"};
  fake.integer_arguments = {{"advance", 4}};
  TensorView x(memory_, DType::f32, {3, 100}), out(memory_ + 65536, DType::f32, {100});
  x.device = out.device = {DeviceType::rocm, 1};
  int stream = 0;
  const auto status = call("walk", {{"x", x}, {"out", out}}, {}, {&stream});
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(fake.fills.size(), 1u);
  EXPECT_EQ(fake.fills[0].bytes, 512u + 400u);
  EXPECT_EQ(fake.fills[0].launches_before, 0u);
  EXPECT_EQ(fake.fills[0].stream, reinterpret_cast<Stream>(&stream));
  ASSERT_EQ(fake.launches.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fake.launches[i].integer, static_cast<std::int64_t>(i));
}

TEST_F(HipCalls, CooperativeLaunchesHaveACallOfTheirOwn) {
  ASSERT_TRUE(add_store(test::source_dir() + "/tests/launches/data"));
  auto& fake = cuda::FakeDriver::instance();
  fake.kernels = {"walk"};
  TensorView x(memory_, DType::f32, {3, 100}), out(memory_ + 65536, DType::f32, {100});
  x.device = out.device = {DeviceType::rocm, 1};
  const auto walk = [&](std::int64_t items) { return call("walk_at_once", {{"x", x}, {"out", out}}, {{"items", items}}); };
  const auto status = walk(8);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(fake.launches.size(), 1u);
  EXPECT_TRUE(fake.launches[0].cooperative);
  ASSERT_EQ(fake.fills.size(), 1u);
  EXPECT_EQ(fake.fills[0].bytes, 1024u + 4u);
  const auto large = walk(212);  // 104 compute units, 2 blocks each
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("has 212 blocks of 64 threads"), std::string::npos) << large.error().message;
  EXPECT_NE(large.error().message.find("hip:1 holds 208"), std::string::npos) << large.error().message;
}

TEST_F(HipCalls, InfoNamesWhatWasFound) {
  const auto text = info();
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("hip-amd-instinct-mi250x-104cu"), std::string::npos) << *text;
  EXPECT_NE(text->find("HIP 6.3"), std::string::npos) << *text;
}

}  // namespace
}  // namespace ejk::hip
