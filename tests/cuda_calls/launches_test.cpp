// Launches over time, cooperative ones and zeroed workspaces, as they reach the driver.
#include "backends/cuda/nvrtc.hpp"
#include "cuda/fake_driver.hpp"
#include "ejk/ejk.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk::cuda::launches_test {
namespace {

FakeDriver& fake() { return FakeDriver::instance(); }

class CudaLaunches : public StoreTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(add_store(test::source_dir() + "/tests/launches/data"));
    if (!nvrtc().found()) GTEST_SKIP() << nvrtc().why_not;
    FakeDriver::reset();
    fake().kernels = {"advance", "finish", "walk"};
    fake().kernels_of_maps.clear();
    fake().integer_arguments = {{"advance", 4}};
  }

  Status run(const char* kernel, std::int64_t steps, std::int64_t elements, void* stream = nullptr, std::int64_t items = 0) {
    TensorView x(memory_, DType::f32, {steps, elements}), out(memory_ + 65536, DType::f32, {elements});
    x.device = out.device = {DeviceType::cuda, 1};
    std::map<std::string, Value> attributes;
    if (items) attributes["items"] = items;
    return call(kernel, {{"x", x}, {"out", out}}, attributes, {stream});
  }

  alignas(256) std::byte memory_[131072];
  int stream_ = 0;
};

TEST_F(CudaLaunches, OneMemsetComesBeforeALaunchAStep) {
  const auto status = run("walk", 3, 100, &stream_);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(fake().fills.size(), 1u) << "the two buffers lie together";
  EXPECT_EQ(fake().fills[0].bytes, 512u + 400u);
  EXPECT_EQ(fake().fills[0].value, 0);
  EXPECT_EQ(fake().fills[0].launches_before, 0u);
  EXPECT_EQ(fake().fills[0].stream, reinterpret_cast<cuda::Stream>(&stream_));
  ASSERT_EQ(fake().launches.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fake().launches[i].kernel, "advance");
    EXPECT_EQ(fake().launches[i].integer, static_cast<std::int64_t>(i));
    EXPECT_EQ(fake().launches[i].stream, reinterpret_cast<cuda::Stream>(&stream_));
  }
  EXPECT_EQ(fake().launches[3].kernel, "finish");
  EXPECT_TRUE(fake().memory.empty()) << "the workspace went back";
}

TEST_F(CudaLaunches, NoStepsAreNoLaunchAndOnlyWhatIsNeededIsZeroed) {
  ASSERT_TRUE(run("walk", 0, 100, &stream_));
  ASSERT_EQ(fake().launches.size(), 1u);
  ASSERT_EQ(fake().fills.size(), 1u);
  EXPECT_EQ(fake().fills[0].bytes, 400u) << "'odd' is zeroed only where there are two steps";
  ASSERT_TRUE(run("walk", 2, 0, &stream_));
  EXPECT_EQ(fake().launches.size(), 1u) << "nothing to do: nothing is launched,";
  EXPECT_EQ(fake().fills.size(), 1u) << "and nothing zeroed";
}

TEST_F(CudaLaunches, AMemsetThatFailsNamesItselfAndGivesTheWorkspaceBack) {
  fake().next_result["fill"] = 1;
  const auto status = run("walk", 3, 100, &stream_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::device);
  EXPECT_TRUE(status.error().message.starts_with("zeroing 912 bytes of a workspace on cuda:1: ")) << status.error().message;
  EXPECT_TRUE(fake().launches.empty());
  EXPECT_TRUE(fake().memory.empty());
}

TEST_F(CudaLaunches, ACooperativeLaunchHasItsBarriersWordZeroed) {
  for (int i = 0; i < 2; ++i) {
    const auto status = run("walk_at_once", 3, 100, &stream_, 8);
    ASSERT_TRUE(status) << status.error().message;
  }
  ASSERT_EQ(fake().launches.size(), 2u);
  EXPECT_TRUE(fake().launches[0].cooperative);
  EXPECT_EQ(std::vector<unsigned>(fake().launches[0].grid, fake().launches[0].grid + 3), std::vector<unsigned>({4, 2, 1}));
  ASSERT_EQ(fake().fills.size(), 2u);
  EXPECT_EQ(fake().fills[1].bytes, 1024u + 4u) << "with the states before it, in every call";
  EXPECT_EQ(fake().fills[1].launches_before, 1u);
  EXPECT_EQ(fake().count("occupancy of 64 threads, 52 bytes"), 1u) << "when the plan is made, and once";
}

TEST_F(CudaLaunches, ACooperativeGridThatDoesNotFitIsRefusedWithBothNumbers) {
  ASSERT_TRUE(run("walk_at_once", 3, 100, &stream_, 264));  // 132 processors, 2 blocks each
  const auto status = run("walk_at_once", 3, 100, &stream_, 268);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_NE(status.error().message.find(": the cooperative launch walk has 268 blocks of 64 threads with 4 bytes of dynamic shared memory, "
                                        "which wait for each other, so all must be resident at once; cuda:1 holds 264: make its grid "
                                        "that small, or its blocks smaller"),
            std::string::npos)
      << status.error().message;
  EXPECT_EQ(fake().launches.size(), 1u);
  fake().next_result["occupancy"] = 1;
  EXPECT_FALSE(run("walk_at_once", 3, 100, &stream_, 4)) << "a driver that does not say is believed in nothing";
}

}  // namespace
}  // namespace ejk::cuda::launches_test
