// The backend over a fake driver that records every call: probe, load, launch, memory, faults.
#include "backends/cuda/cuda.hpp"

#include <thread>

#include "backends/cuda/cubin_archive.hpp"
#include "cuda/cuda_image.hpp"
#include "cuda/fake_driver.hpp"
#include "cuda/hand_made_cubin.hpp"

namespace ejk::cuda::backend_test {
namespace {

constexpr Result illegal_address = 700;

const Nvrtc& no_nvrtc() {
  static const Nvrtc none = load_nvrtc({});
  return none;
}

FakeDriver& fake() { return FakeDriver::instance(); }

template <class F>
std::string error_of(F&& work) {
  try {
    work();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

// Each test has a backend of its own. It is never destroyed, as the process's own.
class CudaBackend : public testing::Test {
 protected:
  CudaBackend() { FakeDriver::reset(); }

  Probe probe(int device = 0) {
    std::vector<spec::Arch> archs;
    for (const char* name : cuda_archs) archs.push_back(cuda_arch(name));
    std::vector<const spec::Arch*> pointers;
    for (const auto& arch : archs) pointers.push_back(&arch);
    return backend.probe(pointers, device);
  }

  void* entry(const std::string& name = "fill") {
    if (!module) module = backend.load_bytes(hand_made_cubin(90), cuda_image("", "sm_90a"));
    return module->entry(name);
  }

  LaunchRequest request(int device = 0) {
    LaunchRequest request;
    request.entry = entry();
    request.grid[0] = 7;
    request.block[0] = 128;
    request.device = device;
    return request;
  }

  Backend& backend = lasting(make_backend(fake_driver, no_nvrtc));
  std::unique_ptr<Module> module;
};

TEST_F(CudaBackend, ProbeTellsWhatTheDeviceIs) {
  const auto found = probe();
  EXPECT_TRUE(found.available);
  EXPECT_EQ(backend.device_count(), 2);
  EXPECT_EQ(found.description, "NVIDIA H200, compute capability 9.0, 132 SMs, 141 GiB, 1980 MHz, driver 580.65.06, CUDA 13.0");
  EXPECT_EQ(found.fingerprint, "cuda-nvidia-h200-132sm");
  EXPECT_EQ(found.archs, std::vector<std::string>({"cuda:sm_90a"}));
  EXPECT_EQ(found.properties[0], (std::pair<std::string, spec::Value>("sms", std::int64_t{132})));
  EXPECT_EQ(found.properties[1], (std::pair<std::string, spec::Value>("shared_memory", std::int64_t{232448})));
  EXPECT_EQ(fake().count("retain"), 0u) << "a probe makes no context";
}

TEST_F(CudaBackend, AnArchiveOfCubinsIsOneModule) {
  const auto cubin = hand_made_cubin(90);
  module = backend.load_bytes(join_cubins({cubin, cubin + '\n'}), cuda_image("", "sm_90a"));
  EXPECT_EQ(fake().count("load"), 2u);
  EXPECT_NE(entry(), nullptr);
  EXPECT_EQ(entry("no_such_entry"), nullptr);
  const auto other = [&] {
    return error_of([&] { (void)backend.load_bytes(join_cubins({cubin, hand_made_cubin(80)}), cuda_image("", "sm_90a")); });
  };
  EXPECT_TRUE(has(other(), "is for sm_80, expected cuda:sm_90a")) << other();
  const auto damaged = [&] {
    return error_of([&] { (void)backend.load_bytes(join_cubins({cubin}).substr(0, 99), cuda_image("", "sm_90a")); });
  };
  EXPECT_TRUE(has(damaged(), "the binary of toy.gpu.cuda_sm_90a cannot be used: cubin 0 of the archive is to have '")) << damaged();
}

TEST_F(CudaBackend, ADeviceThatNoArchIsForIsNamed) {
  fake().parts = {{"Tesla T4", 7, 5}};
  const auto found = probe();
  EXPECT_FALSE(found.available);
  EXPECT_EQ(found.why_not, "Tesla T4 has compute capability 7.5, which none of the 6 CUDA archs is for");
}

TEST_F(CudaBackend, ADriverWithoutDevicesTellsWhy) {
  fake().init_result = no_device;
  EXPECT_EQ(backend.device_count(), 0);
  EXPECT_TRUE(probe().why_not.starts_with("/fake/libcuda.so.1 finds no device: CUDA_ERROR_NO_DEVICE: the driver's words"))
      << probe().why_not;
}

TEST_F(CudaBackend, LoadChecksTheBytesFirst) {
  const auto load = [&](const std::string& bytes, const std::string& arch) {
    return error_of([&] { (void)backend.load_bytes(bytes, cuda_image("", arch)); });
  };
  EXPECT_EQ(load(hand_made_cubin(80), "sm_90a"), "the binary of toy.gpu.cuda_sm_90a is for sm_80, expected cuda:sm_90a");
  EXPECT_EQ(load("", "sm_90a"),
            "the binary of toy.gpu.cuda_sm_90a cannot be used: it has 0 bytes, fewer than an ELF header: it is truncated");
  EXPECT_EQ(load(hand_made_cubin(80), "sm_80"),
            "toy.gpu.cuda_sm_80 is for cuda:sm_80, which no device here runs: NVIDIA H200 (9.0), NVIDIA H200 (9.0)");
  EXPECT_EQ(fake().count("load"), 0u);
}

TEST_F(CudaBackend, TheSameBytesAreLoadedOnceAndStay) {
  void* first = entry();
  ASSERT_NE(first, nullptr);
  module.reset();
  EXPECT_EQ(entry(), first);
  EXPECT_EQ(fake().count("load"), 1u);
  EXPECT_EQ(fake().calls[0], "load in capture mode 2") << "relaxed: another thread may be capturing";
  EXPECT_EQ(entry("nothing"), nullptr);
}

TEST_F(CudaBackend, ALaunchReachesItsDeviceAndStream) {
  auto on_second = request(1);
  on_second.grid[1] = 3;
  on_second.shared_bytes = 1024;
  int stream = 0;
  backend.launch(on_second, &stream);
  ASSERT_EQ(fake().launches.size(), 1u);
  const auto& launch = fake().launches[0];
  EXPECT_EQ(launch.kernel, "fill");
  EXPECT_EQ(launch.device, 1);
  EXPECT_EQ(launch.stream, reinterpret_cast<Stream>(&stream));
  EXPECT_EQ(std::vector<unsigned>(launch.grid, launch.grid + 3), std::vector<unsigned>({7, 3, 1}));
  EXPECT_EQ(launch.block[0], 128u);
  EXPECT_EQ(launch.shared_bytes, 1024u);
  EXPECT_TRUE(fake().context_stack.empty()) << "the thread's context is as it was";
  EXPECT_EQ(fake().capture_mode, 0) << "and so is its capture mode";
}

TEST_F(CudaBackend, TheCurrentContextIsKeptWhereItIsOfTheDevice) {
  fake().context_stack = {0};
  backend.launch(request(0), nullptr);
  EXPECT_EQ(fake().count("retain"), 0u);
  backend.launch(request(1), nullptr);
  EXPECT_EQ(fake().launches[1].device, 1);
  EXPECT_EQ(fake().context_stack, std::vector<int>({0}));
}

TEST_F(CudaBackend, ArrangementsAreMadeOnce) {
  auto large = request();
  large.shared_bytes = 65536;
  for (int i = 0; i < 5; ++i) backend.launch(large, nullptr);
  large.shared_bytes = 1000;
  backend.launch(large, nullptr);
  EXPECT_EQ(fake().count("attribute"), 1u);
  EXPECT_EQ(fake().count("attribute 8=65536 on 0"), 1u);
  EXPECT_EQ(fake().count("function"), 1u);
  EXPECT_EQ(fake().count("retain"), 1u);
  large.device = 1;
  large.shared_bytes = 70000;
  backend.launch(large, nullptr);
  EXPECT_EQ(fake().count("attribute 8=70000 on 1"), 1u);
}

TEST_F(CudaBackend, ClustersAndCooperativeLaunches) {
  auto special = request();
  special.cluster[0] = 16;
  backend.launch(special, nullptr);
  EXPECT_EQ(fake().launches[0].cluster[0], 16u);
  EXPECT_EQ(fake().count("attribute 14=1 on 0"), 1u);
  EXPECT_FALSE(fake().launches[0].cooperative);
  special.cluster[0] = 1;
  special.cooperative = true;
  backend.launch(special, nullptr);
  EXPECT_TRUE(fake().launches[1].cooperative);
  EXPECT_EQ(fake().launches[1].cluster[0], 0u);
}

TEST_F(CudaBackend, ResidentBlocksAreCountedWithTheSharedMemoryAskedFor) {
  auto large = request();
  large.cooperative = true;
  large.shared_bytes = 65536;
  fake().blocks_a_processor = 3;
  EXPECT_EQ(backend.resident_blocks(large), 3 * 132);
  EXPECT_EQ(fake().count("attribute 8=65536 on 0"), 1u) << "before it is asked how many fit";
  EXPECT_EQ(fake().count("occupancy of 128 threads, 65536 bytes"), 1u);
  EXPECT_TRUE(fake().launches.empty());
}

TEST_F(CudaBackend, LaunchesOverlapWhereTheDeviceCan) {
  auto second = request();
  second.overlaps = true;
  backend.launch(second, nullptr);
  EXPECT_TRUE(fake().launches[0].overlaps);
  EXPECT_FALSE(fake().launches[0].cooperative);
  backend.launch(request(), nullptr);
  EXPECT_FALSE(fake().launches[1].overlaps);
}

TEST_F(CudaBackend, GeometryOutOfBoundsNeverReachesTheDriver) {
  auto wide = request();
  wide.grid[1] = 65536;
  const auto error = error_of([&] { backend.launch(wide, nullptr); });
  EXPECT_EQ(error,
            "launching toy.gpu.cuda_sm_90a/fill on cuda:0, grid 7 x 65536 x 1, block 128 x 1 x 1, 0 bytes of dynamic shared memory: a grid "
            "has at most 2147483647 x 65535 x 65535 blocks, a block at most 1024 threads, and neither has none");
  for (int i = 0; i < 3; ++i) {
    auto empty = request(), large = request();
    empty.grid[i] = 0;
    large.block[i] = 1025;
    EXPECT_NE(error_of([&] { backend.launch(empty, nullptr); }), "");
    EXPECT_NE(error_of([&] { backend.launch(large, nullptr); }), "");
  }
  auto greedy = request();
  greedy.shared_bytes = 232449;
  EXPECT_TRUE(has(error_of([&] { backend.launch(greedy, nullptr); }), "a block of NVIDIA H200 has at most 232448 bytes"));
  EXPECT_TRUE(fake().launches.empty());
}

TEST_F(CudaBackend, AnErrorNamesLaunchAndDriversWords) {
  fake().next_result["launch"] = 1;
  EXPECT_EQ(error_of([&] { backend.launch(request(), nullptr); }),
            "launching toy.gpu.cuda_sm_90a/fill on cuda:0, grid 7 x 1 x 1, block 128 x 1 x 1, 0 bytes of dynamic shared memory: "
            "CUDA_ERROR_INVALID_VALUE: the driver's words");
  fake().next_result.clear();
  EXPECT_EQ(error_of([&] { backend.launch(request(), nullptr); }), "") << "an error that is not a fault passes";
}

TEST_F(CudaBackend, AFaultIsToldOnceThenTheContextIsLost) {
  backend.launch(request(), nullptr);
  fake().next_result["synchronize"] = illegal_address;
  const auto first = error_of([&] { backend.memory()->synchronize(0); });
  EXPECT_TRUE(has(first, "waiting for cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS")) << first;
  EXPECT_TRUE(has(first, "ejk's last one was toy.gpu.cuda_sm_90a/fill")) << first;
  const auto launches = fake().launches.size();
  for (const auto& later :
       {error_of([&] { backend.launch(request(), nullptr); }), error_of([&] { backend.acquire_workspace(0, nullptr, 8); }),
        error_of([&] { backend.memory()->allocate(0, 8); })})
    EXPECT_TRUE(later.starts_with("cuda:0: the device's context is lost since waiting for cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS") &&
                later.ends_with("restart the process"))
        << later;
  EXPECT_EQ(fake().launches.size(), launches);
  backend.launch(request(1), nullptr);  // another device's context is another one
  EXPECT_EQ(fake().launches.size(), launches + 1);
}

TEST_F(CudaBackend, MemoryGoesThereAndBack) {
  auto& memory = *backend.memory();
  const std::string text = "sixteen bytes!!!";
  std::string back(16, ' ');
  void* device = memory.allocate(1, 16);
  memory.copy_to_device(1, device, text.data(), 16);
  memory.copy_to_host(1, back.data(), device, 16);
  EXPECT_EQ(back, text);
  EXPECT_TRUE(
      has(error_of([&] { memory.copy_to_host(1, back.data(), device, 17); }), "copying 17 bytes from cuda:1: CUDA_ERROR_INVALID_VALUE"));
  memory.free(1, device);
  memory.free(0, memory.allocate(0, 0));
  EXPECT_TRUE(fake().memory.empty());
}

TEST_F(CudaBackend, OutOfMemoryTellsHowMuchThereIs) {
  fake().next_result["allocate"] = out_of_memory;
  EXPECT_EQ(error_of([&] { backend.acquire_workspace(0, nullptr, 5000); }),
            "a workspace of 5000 bytes on cuda:0 (1000 of 2000 bytes are free): CUDA_ERROR_OUT_OF_MEMORY: the driver's words");
  fake().next_result.clear();
  backend.launch(request(), nullptr);
}

TEST_F(CudaBackend, ADeviceThatIsNotThereIsNamed) {
  EXPECT_EQ(error_of([&] { backend.launch(request(2), nullptr); }), "there is no device cuda:2; this process sees 2");
  EXPECT_EQ(error_of([&] { backend.memory()->allocate(-1, 1); }), "there is no device cuda:-1; this process sees 2");
}

TEST_F(CudaBackend, TensorMapsAreEncodedInnermostFirst) {
  TensorMap map{};
  TensorMapRequest request{DType::bf16, reinterpret_cast<void*>(0x1000), {4, 100, 64}, {12800, 128, 1}, {1, 64, 64}, 128};  // NOLINT
  backend.encode_tensor_map(request, &map);
  EXPECT_EQ(map.words[1], 9u);
  EXPECT_EQ(map.words[2], 3u);
  EXPECT_EQ(map.words[3], 3u);
  EXPECT_EQ(std::vector<std::uint64_t>(map.words + 4, map.words + 7), std::vector<std::uint64_t>({64, 100, 4}));
  EXPECT_EQ(std::vector<std::uint64_t>(map.words + 8, map.words + 10), std::vector<std::uint64_t>({256, 25600}));
  EXPECT_EQ(std::vector<std::uint64_t>(map.words + 12, map.words + 15), std::vector<std::uint64_t>({64, 64, 1}));
  backend.set_tensor_map_address(0, &map, reinterpret_cast<void*>(0x2000));  // NOLINT
  EXPECT_EQ(map.words[0], 0x2000u);
}

TEST_F(CudaBackend, TensorMapRulesAreNamed) {
  TensorMap map{};
  const TensorMapRequest good{DType::f16, reinterpret_cast<void*>(0x1000), {100, 64}, {64, 1}, {64, 64}, 128};  // NOLINT
  const auto refusal = [&](auto change) {
    auto request = good;
    change(request);
    return error_of([&] { backend.encode_tensor_map(request, &map); });
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& r) { r.address = reinterpret_cast<void*>(0x1008); }),  // NOLINT
            "tensor map: its address must be a multiple of 16 bytes");
  EXPECT_EQ(refusal([](auto& r) { r.strides = {64, 2}; }), "tensor map: the elements of its last dim must lie side by side");
  EXPECT_EQ(refusal([](auto& r) {
              r.strides = {65, 1};
            }),
            "tensor map: dim 0 has a stride of 130 bytes, expected a multiple of 16, from 0 up to 2^40");
  EXPECT_EQ(refusal([](auto& r) { r.box = {257, 64}; }), "tensor map: the box has 257 elements in dim 0, expected 1 to 256");
  EXPECT_EQ(refusal([](auto& r) { r.box = {64}; }), "tensor map: a box of 1 extents for a tensor of 2 dims");
  EXPECT_EQ(refusal([](auto& r) { r.box = {64, 128}; }), "tensor map: a box's row is 256 bytes, more than the swizzle");
  EXPECT_EQ(refusal([](auto& r) { r.shape = {0, 64}; }), "tensor map: dim 0 has 0 elements, expected 1 to 2^32");
}

TEST_F(CudaBackend, ManyThreadsLaunchAtOnce) {
  fake().context_stack = {0};          // the fake's stack is one for all threads: nothing is pushed
  backend.launch(request(), nullptr);  // from here on a launch only reads
  const auto ready = request();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < 100; ++n) backend.launch(ready, nullptr);
      });
  }
  EXPECT_EQ(fake().launches.size(), 401u);
}

// This machine as it is: with no driver, the backend says what it looked for and refuses without a crash.
TEST(CudaWithoutDriver, ItSaysWhatItLookedFor) {
  auto& backend = lasting(make_backend([] { return load_driver({"libcuda-of-no-machine.so.1", "/nowhere/libcuda.so.1"}); }, no_nvrtc));
  EXPECT_EQ(backend.device_count(), 0);
  const auto found = backend.probe({}, 0);
  EXPECT_FALSE(found.available);
  EXPECT_EQ(found.why_not, "no NVIDIA driver: looked for libcuda-of-no-machine.so.1, /nowhere/libcuda.so.1");
  EXPECT_EQ(error_of([&] { (void)backend.load_bytes(hand_made_cubin(90), cuda_image("")); }),
            "cannot load toy.gpu.cuda_sm_90a: " + found.why_not);
  EXPECT_EQ(error_of([&] { backend.memory()->allocate(0, 1); }), found.why_not);
  EXPECT_EQ(error_of([&] { backend.acquire_workspace(0, nullptr, 1); }), found.why_not);
  const auto libraries = backend.libraries();
  EXPECT_EQ(libraries[0].second, found.why_not);
  EXPECT_EQ(libraries[1].second.find("no CUDA compiler (NVRTC): nowhere to look"), 0u) << libraries[1].second;
}

TEST(CudaWithoutDriver, AnotherLibraryInItsPlaceIsNamed) {
  const auto driver = load_driver({"libc.so.6"});
  EXPECT_FALSE(driver.found());
  EXPECT_TRUE(has(driver.why_not, "has no cuInit, ") && driver.why_not.ends_with("driver 525 (CUDA 12.0) or newer is needed"))
      << driver.why_not;
}

}  // namespace
}  // namespace ejk::cuda::backend_test
