// Whole calls on tensors of a HIP device, over a library in libamdhip64's place that keeps book: what reaches it.
#include "backends/hip_compile.hpp"
#include "ejk/ejk.hpp"
#include "execute/library_state.hpp"
#include "execute/store_fixture.hpp"
#include "hip/fake_hip.hpp"

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

TEST_F(HipCalls, InfoNamesWhatWasFound) {
  const auto text = info();
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("hip-amd-instinct-mi250x-104cu"), std::string::npos) << *text;
  EXPECT_NE(text->find("HIP 6.3"), std::string::npos) << *text;
}

}  // namespace
}  // namespace ejk::hip
