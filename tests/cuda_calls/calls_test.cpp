// Whole calls on tensors of a CUDA device, over a fake libcuda that records every call: what reaches the driver, and when.
#include "backends/cuda/nvrtc.hpp"
#include "cuda/fake_driver.hpp"
#include "ejk/ejk.hpp"
#include "execute/library_state.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk::cuda::calls_test {
namespace {

FakeDriver& fake() { return FakeDriver::instance(); }

class CudaCalls : public StoreTest {
 protected:
  void SetUp() override {
    EXPECT_TRUE(add_store(test::source_dir() + "/tests/cuda_calls/data"));
    if (!nvrtc().found()) GTEST_SKIP() << nvrtc().why_not;
    FakeDriver::reset();
  }

  static TensorView view(std::byte* memory, std::int64_t rows, int device = 1) {
    TensorView view;
    view.data = memory;
    view.type = DType::f32;
    view.device = {DeviceType::cuda, device};
    view.rank = 2;
    view.shape[0] = rows;
    view.shape[1] = 64;
    view.strides[0] = 64;
    view.strides[1] = 1;
    return view;
  }

  Status run(std::size_t offset = 0, void* stream = nullptr, int device = 1) {
    return call("copy_tiles", {{"x", view(memory_ + offset, 20, device)}, {"out", view(memory_ + 65536 + offset, 20, device)}},
                {{"by", 2.0}}, {stream});
  }

  alignas(256) std::byte memory_[131072];
};

TEST_F(CudaCalls, BothLaunchesReachDeviceAndStream) {
  int stream = 0;
  const auto status = run(0, &stream);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(fake().launches.size(), 2u);
  for (const auto& launch : fake().launches) {
    EXPECT_EQ(launch.device, 1);
    EXPECT_EQ(launch.stream, reinterpret_cast<cuda::Stream>(&stream));
    EXPECT_EQ(std::vector<unsigned>(launch.grid, launch.grid + 3), std::vector<unsigned>({2, 3, 1}));
  }
  EXPECT_EQ(fake().launches[0].shared_bytes, 1024u);
  EXPECT_EQ(fake().launches[1].shared_bytes, 2048u);
  EXPECT_EQ(fake().launches[0].kernel, "fetch");
  EXPECT_EQ(fake().launches[1].kernel, "scale");
  EXPECT_TRUE(fake().memory.empty()) << "the workspace went back";
}

TEST_F(CudaCalls, TheCallersWorkspaceIsUsed) {
  const std::map<std::string, TensorView> tensors = {{"x", view(memory_, 20)}, {"out", view(memory_ + 65536, 20)}};
  const auto choice = choose("copy_tiles", tensors, {});
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->workspace_bytes, 20 * 64 * 4);
  EXPECT_EQ(choice->image, "copy_tiles.tma.cuda_sm_90a.f32.rows8");
  const auto* kernel = find_kernel("copy_tiles");
  const TensorView* views[] = {&tensors.at("x"), &tensors.at("out")};
  const AttributeValue by[] = {AttributeValue::of(2.0)};
  ASSERT_TRUE(make_ready(kernel, views, by));
  EXPECT_EQ(fake().launches.size(), 0u);
  alignas(256) std::byte scratch[20 * 64 * 4];
  const auto status = call(kernel, views, by, {}, nullptr, {scratch, sizeof scratch});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(fake().count("allocate"), 0u);
  ASSERT_EQ(fake().launches.size(), 2u);
  EXPECT_EQ(fake().launches[1].first_map.words[0], reinterpret_cast<std::uint64_t>(scratch));
  const auto small = call(kernel, views, by, {}, nullptr, {scratch, 100});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().message,
            "copy_tiles.tma.cuda_sm_90a.f32.rows8: the caller's workspace has 100 bytes, 0 past a multiple of 256; expected 5120 bytes at "
            "such a multiple");
  EXPECT_EQ(fake().launches.size(), 2u) << "nothing was launched";
}

TEST_F(CudaCalls, TensorMapsAreEncodedOnceAndGetEachCallsAddress) {
  ASSERT_TRUE(run());
  EXPECT_EQ(fake().count("encode"), 2u);
  ASSERT_TRUE(run(512));
  EXPECT_EQ(fake().count("encode"), 2u) << "the same plan";
  ASSERT_EQ(fake().launches.size(), 4u);
  const auto address = [&](std::size_t launch) { return fake().launches[launch].first_map.words[0]; };
  EXPECT_EQ(address(0), reinterpret_cast<std::uint64_t>(memory_));
  EXPECT_EQ(address(2), reinterpret_cast<std::uint64_t>(memory_ + 512));
  EXPECT_NE(address(1), 0u) << "the workspace's";
  const auto& of_x = fake().launches[2].first_map;
  EXPECT_EQ(std::vector<std::uint64_t>(of_x.words + 4, of_x.words + 6), std::vector<std::uint64_t>({64, 20}));
  EXPECT_EQ(std::vector<std::uint64_t>(of_x.words + 12, of_x.words + 14), std::vector<std::uint64_t>({32, 8}));
  EXPECT_EQ(fake().launches[1].first_map.words[3], 3u) << "swizzle 128";
}

TEST_F(CudaCalls, AMapIsOfTheTensorThatItsConditionsChoose) {
  fake().kernels = {"pick"};
  fake().kernels_of_maps = {"pick"};
  const auto pick = [&](std::int64_t rows, bool second) {
    return call("pick_tiles", {{"x", view(memory_, rows)}, {"y", view(memory_ + 16384, rows)}, {"out", view(memory_ + 65536, rows)}},
                {{"second", second}});
  };
  for (const bool second : {false, true, false}) {
    const auto status = pick(20, second);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(fake().launches.back().first_map.words[0], reinterpret_cast<std::uint64_t>(memory_ + (second ? 16384 : 0)));
    EXPECT_EQ(fake().launches.back().first_map.words[5], 20u);
  }
  ASSERT_TRUE(pick(3, false));
  EXPECT_EQ(fake().launches.back().first_map.words[5], 4u) << "the workspace's rows";
  EXPECT_EQ(fake().launches.back().first_map.words[0], fake().fills.back().address);
}

constexpr char no_room[] = ": the driver says that no such cluster fits this device";

// A part of a device may have room for blocks and none for clusters of them.
TEST_F(CudaCalls, WhereTheDriverPlacesNoClusterTheNextVariantServes) {
  fake().kernels = {"copy_rows"};
  const auto copy = [&](std::int64_t rows, const Config* config = nullptr) {
    return call("in_pairs", {{"x", view(memory_, rows)}, {"out", view(memory_ + 65536, rows)}}, {}, {}, config);
  };
  ASSERT_TRUE(copy(20));
  ASSERT_TRUE(copy(20));
  ASSERT_EQ(fake().launches.size(), 2u);
  EXPECT_EQ(fake().launches[1].cluster[0], 2u);
  EXPECT_EQ(fake().count("clusters of 2"), 1u) << "asked when the plan is made, and once";
  EXPECT_EQ(counters().fallbacks, 0u);
  fake().clusters_at_once = 0;
  const auto status = copy(21);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(fake().launches.size(), 3u);
  EXPECT_EQ(fake().launches[2].cluster[0], 0u);
  EXPECT_EQ(fake().launches[2].grid[0], 1u);
  EXPECT_EQ(counters().fallbacks, 1u);
  const auto told = explain("in_pairs", {{"x", view(memory_, 21)}, {"out", view(memory_ + 65536, 21)}}, {});
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_NE(told->find(no_room), std::string::npos) << *told;
}

TEST_F(CudaCalls, AnOverrideWhoseClustersHaveNoPlaceIsRefusedWithTheReason) {
  fake().kernels = {"copy_rows"};
  fake().next_result["clusters"] = 912;  // CUDA_ERROR_INVALID_CLUSTER_SIZE
  const Config config = {"clusters", "cuda:sm_90a", {}};
  const auto status = call("in_pairs", {{"x", view(memory_, 20)}, {"out", view(memory_ + 65536, 20)}}, {}, {}, &config);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(
      status.error().message,
      "in_pairs.clusters.cuda_sm_90a: launching in_pairs.clusters.cuda_sm_90a/copy_rows on cuda:1, grid 2 x 20 x 1, block 32 x 1 x 1, 0 "
      "bytes of dynamic shared memory, clusters of 2 x 1 x 1" +
          std::string(no_room));
  EXPECT_TRUE(fake().launches.empty());
}

TEST_F(CudaCalls, ATensorThatNoMapCanDescribeIsRefused) {
  const auto status = run(8);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::device);
  EXPECT_EQ(status.error().message,
            "copy_tiles.tma.cuda_sm_90a.f32.rows8: x [20, 64] of strides [64, 1]: tensor map: its address must be a multiple of 16 bytes");
}

TEST_F(CudaCalls, TheBinaryComesFromTheCacheTheSecondTime) {
  ASSERT_TRUE(run());
  EXPECT_EQ(counters().compiles, 1u);
  EXPECT_EQ(fake().count("load"), 2u) << "a cubin for each of its entries";
  ASSERT_TRUE(run(0, nullptr, 0));  // another device, another plan, the same library
  EXPECT_EQ(counters().compiles, 1u);
  EXPECT_EQ(fake().count("load"), 2u);
  EXPECT_EQ(fake().launches.back().device, 0);
}

// The config of 16 rows is there, that of 8 is not.
TEST_F(CudaCalls, AStreamThatIsCapturedGetsNoStandIn) {
  const Config wide{"tma", "", {{"rows", std::int64_t{16}}}};
  const auto with = [&](const Config* config) {
    return call("copy_tiles", {{"x", view(memory_, 20)}, {"out", view(memory_ + 65536, 20)}}, {{"by", 2.0}}, {}, config);
  };
  ASSERT_TRUE(with(&wide));
  ASSERT_TRUE(set_jit(Jit::background));
  fake().capturing = 1;
  ASSERT_TRUE(with(nullptr));
  EXPECT_EQ(counters().stand_ins, 0u);
  EXPECT_EQ(counters().compiles, 2u) << "it waited";
}

// As programs do that run a step once, then capture it.
TEST_F(CudaCalls, AStandInThatServedBeforeIsNotCaptured) {
  const Config wide{"tma", "", {{"rows", std::int64_t{16}}}};
  const auto with = [&](const Config* config) {
    return call("copy_tiles", {{"x", view(memory_, 20)}, {"out", view(memory_ + 65536, 20)}}, {{"by", 2.0}}, {}, config);
  };
  ASSERT_TRUE(with(&wide));
  ASSERT_TRUE(set_jit(Jit::background));
  ASSERT_TRUE(with(nullptr));
  ASSERT_EQ(counters().stand_ins, 1u);
  const auto plans = counters().plans;
  fake().capturing = 1;
  ASSERT_TRUE(with(nullptr));
  EXPECT_EQ(counters().plans, plans + 1) << "the stand-in's plan was taken, before its own image was there";
  EXPECT_EQ(counters().stand_ins, 1u);
  ASSERT_TRUE(wait_for_images(std::chrono::minutes(1)));  // the thread that compiled counts it when the call that waited may have gone on
  EXPECT_EQ(counters().compiles, 2u) << "it waited for the image, and compiled no other";
}

TEST_F(CudaCalls, AnotherConfigServesWhileItsOwnIsCompiled) {
  const Config wide{"tma", "", {{"rows", std::int64_t{16}}}};
  const auto with = [&](const Config* config) {
    return call("copy_tiles", {{"x", view(memory_, 20)}, {"out", view(memory_ + 65536, 20)}}, {{"by", 2.0}}, {}, config);
  };
  ASSERT_TRUE(with(&wide));
  ASSERT_TRUE(set_jit(Jit::background));
  ASSERT_TRUE(with(nullptr));
  EXPECT_EQ(counters().stand_ins, 1u);
  ASSERT_TRUE(wait_for_images(std::chrono::minutes(1)));
  EXPECT_EQ(counters().compiles, 2u);
  ASSERT_TRUE(with(nullptr));
  EXPECT_EQ(counters().stand_ins, 1u);
  EXPECT_EQ(counters().fallbacks, 0u);
}

TEST_F(CudaCalls, ALaunchThatFailsGivesTheWorkspaceBackAndNamesItself) {
  int stream = 0;
  fake().next_result["launch"] = 1;
  const auto status = run(0, &stream);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::device);
  EXPECT_TRUE(status.error().message.starts_with("launching copy_tiles.tma.cuda_sm_90a.f32.rows8/fetch on cuda:1, grid 2 x 3 x 1"))
      << status.error().message;
  EXPECT_TRUE(fake().memory.empty());
  EXPECT_FALSE(run());  // on the default stream: what is kept for it is given back, so that the next call takes it again
  const auto kept = fake().memory;
  fake().next_result.clear();
  EXPECT_TRUE(run());
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_EQ(fake().memory, kept);
}

TEST_F(CudaCalls, ALostContextIsOneClearError) {
  ASSERT_TRUE(run());
  fake().next_result["launch"] = 700;
  ASSERT_FALSE(run());
  fake().next_result.clear();
  const auto status = run();
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.starts_with("cuda:1: the device's context is lost since launching ")) << status.error().message;
}

TEST_F(CudaCalls, TensorsOfADeviceThatIsNotThereAreRefused) {
  const auto status = run(0, nullptr, 5);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_NE(status.error().message.find("cuda:5"), std::string::npos) << status.error().message;
}

TEST_F(CudaCalls, InfoNamesWhatWasFound) {
  const auto text = info();
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("cuda-nvidia-h200-132sm"), std::string::npos) << *text;
  EXPECT_NE(text->find("libcuda.so.1, driver "), std::string::npos) << *text;
}

}  // namespace
}  // namespace ejk::cuda::calls_test
