// Configs that fault, hang, spoil memory or are wrong on the device: the worker they run in is lost, the tuner is not.
#include "device/fixture.hpp"
#include "tune/fixture.hpp"

namespace ejk {
namespace {

class DeviceTune : public DeviceTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(add_store(source_folder() + "/tests/tune/data"));
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
  }
  // ejk of the build that this program was built or carried with.
  static std::string worker_path() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../bin/ejk").lexically_normal().string();
  }
};

TEST_F(DeviceTune, TrapsAreToldAndTheTunerLives) {
  const auto outcome = tune_trap(trap_call("cuda"), worker_path(), 120, 3);
  expect_traps_told(outcome, "CUDA_ERROR_ILLEGAL_ADDRESS", "");
  EXPECT_EQ(outcome.call.memory, "cold");
}

TEST_F(DeviceTune, BenchmarkReadsTheDevicesClock) {
  Driver::instance().use_on_this_thread();
  const OnGpu<float> x(numbers(1 << 20)), out(zeros(1 << 20));
  const std::map<std::string, TensorView> tensors{{"x", x.view()}, {"out", out.view()}};
  const auto measured =
      benchmark([&] { ASSERT_EQ(message_of(call("trap", tensors, {})), ""); }, {.seconds = 0.1, .device = first_gpu, .cold = true});
  ASSERT_EQ(message_of(measured), "");
  EXPECT_EQ(measured->clock, "cuda:0");
  EXPECT_GT(measured->median_us, 1) << "8 MB are not moved in a microsecond";
  EXPECT_LT(measured->median_us, 1e5);
}

}  // namespace
}  // namespace ejk
