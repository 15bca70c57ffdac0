// The backend on a real device: results, streams, capture, faults. Skipped, with the reason, where there is none.
#include <chrono>
#include <cstdio>
#include <thread>

#include "backends/cuda/cuda_driver.hpp"
#include "backends/cuda/cuda_module.hpp"
#include "backends/gpu/vendor_library.hpp"
#include "cuda/cuda_image.hpp"

namespace ejk::cuda {
namespace {

// Streams and graphs: of the driver's functions, those that only tests need.
struct StreamFunctions {
  Result (*create)(Stream*, unsigned) = nullptr;
  Result (*synchronize)(Stream) = nullptr;
  Result (*begin_capture)(Stream, int mode) = nullptr;
  Result (*end_capture)(Stream, void** graph) = nullptr;
  Result (*instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
  Result (*replay)(void* executable, Stream) = nullptr;
  Result (*retain)(Context*, DeviceHandle) = nullptr;
  Result (*set_current)(Context) = nullptr;
};

StreamFunctions stream_functions() {
  StreamFunctions call;
  SymbolReader read(open_first(driver_candidates()).handle);
  read("cuStreamCreate", call.create);
  read("cuStreamSynchronize", call.synchronize);
  read("cuStreamBeginCapture_v2", call.begin_capture);
  read("cuStreamEndCapture", call.end_capture);
  read("cuGraphInstantiateWithFlags", call.instantiate);
  read("cuGraphLaunch", call.replay);
  read("cuDevicePrimaryCtxRetain", call.retain);
  read("cuCtxSetCurrent", call.set_current);
  EXPECT_EQ(read.missing(), "");
  return call;
}

const std::string add_source =
    "extern \"C\" __global__ void add(int* out, long long n, int by) {\n"
    "  extern __shared__ int held[];\n"
    "  const long long i = blockIdx.x * 256ll + threadIdx.x;\n"
    "  held[threadIdx.x] = by;\n"
    "  __syncthreads();\n"
    "  if (i < n) out[i] += held[255 - threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void fault(int* out) { out[1ll << 40] = 1; }\n";

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (backend.device_count() == 0) GTEST_SKIP() << backend.probe({}, 0).why_not;
    if (!nvrtc().found()) GTEST_SKIP() << nvrtc().why_not;
    std::vector<spec::Arch> archs;
    for (const char* name : cuda_archs) archs.push_back(cuda_arch(name));
    std::vector<const spec::Arch*> pointers;
    for (const auto& arch : archs) pointers.push_back(&arch);
    const auto probe = backend.probe(pointers, 0);
    ASSERT_TRUE(probe.available) << probe.why_not;
    image = cuda_image(add_source, probe.archs.front().substr(5));
    const auto compiled = compile_cuda_image(nvrtc(), image);
    ASSERT_TRUE(compiled.ok) << compiled.log;
    module = backend.load_bytes(compiled.binary, image);
    memory = static_cast<int*>(backend.memory()->allocate(0, count * 4));
    const std::vector<int> zeros(count);
    backend.memory()->copy_to_device(0, memory, zeros.data(), count * 4);
  }

  void add(void* stream, int by, std::int64_t shared_bytes = 1024) {
    std::int64_t n = count;
    void* arguments[] = {&memory, &n, &by};
    LaunchRequest request;
    request.entry = module->entry("add");
    request.grid[0] = (count + 255) / 256;
    request.block[0] = 256;
    request.shared_bytes = shared_bytes;
    request.arguments = arguments;
    backend.launch(request, stream);
  }

  // The value that all elements have; -1: they differ.
  int value() {
    backend.memory()->synchronize(0);
    std::vector<int> values(count);
    backend.memory()->copy_to_host(0, values.data(), memory, count * 4);
    for (const int each : values)
      if (each != values[0]) return -1;
    return values[0];
  }

  static constexpr int count = 100001;
  Backend& backend = cuda_backend();
  spec::Image image;
  std::unique_ptr<Module> module;
  int* memory = nullptr;
};

TEST_F(CudaDevice, ALaunchComputes) {
  add(nullptr, 3);
  EXPECT_EQ(value(), 3);
  add(nullptr, 4, 100 * 1024 - 1024);  // above what needs no asking
  EXPECT_EQ(value(), 7);
}

TEST_F(CudaDevice, MoreSharedMemoryThanThereIsIsRefusedAndHarmless) {
  EXPECT_THROW(add(nullptr, 1, 1 << 20), DeviceError);
  add(nullptr, 1);
  EXPECT_EQ(value(), 1);
}

TEST_F(CudaDevice, TwoStreamsAndEightThreads) {
  const auto call = stream_functions();
  add(nullptr, 1);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) add(nullptr, 1);
      });
  }
  EXPECT_EQ(value(), 801);
  Context context = nullptr;
  Stream streams[2] = {};
  ASSERT_EQ(call.retain(&context, 0), success);
  ASSERT_EQ(call.set_current(context), success);
  for (auto& stream : streams) ASSERT_EQ(call.create(&stream, 1), success);
  for (int i = 0; i < 10; ++i) {
    add(streams[i % 2], 1);
    ASSERT_EQ(call.synchronize(streams[i % 2]), success);
  }
  EXPECT_EQ(value(), 811);
}

// The first launch of an entry, with code to load and attributes to set, and a workspace, all while the stream is captured.
TEST_F(CudaDevice, FirstLaunchAndWorkspaceUnderCapture) {
  const auto call = stream_functions();
  Context context = nullptr;
  Stream stream = nullptr;
  ASSERT_EQ(call.retain(&context, 0), success);
  ASSERT_EQ(call.set_current(context), success);
  ASSERT_EQ(call.create(&stream, 1), success);
  ASSERT_EQ(call.begin_capture(stream, 0), success);  // global: the strictest
  void* workspace = backend.acquire_workspace(0, stream, 1 << 20);
  EXPECT_NE(workspace, nullptr);
  add(stream, 5, 64 * 1024);
  backend.release_workspace(0, stream, workspace);
  void *graph = nullptr, *executable = nullptr;
  ASSERT_EQ(call.end_capture(stream, &graph), success);
  ASSERT_EQ(call.instantiate(&executable, graph, 0), success);
  EXPECT_EQ(value(), 0) << "captured, not run";
  for (int i = 0; i < 3; ++i) ASSERT_EQ(call.replay(executable, stream), success);
  EXPECT_EQ(value(), 15);
}

TEST_F(CudaDevice, OutOfMemoryIsToldAndHarmless) {
  EXPECT_THROW(backend.memory()->allocate(0, std::int64_t{1} << 44), DeviceError);
  EXPECT_THROW(backend.acquire_workspace(0, nullptr, std::int64_t{1} << 44), DeviceError);
  add(nullptr, 2);
  EXPECT_EQ(value(), 2);
}

TEST_F(CudaDevice, ABinaryOfAnotherArchIsRefused) {
  const std::string other = image.arch == "cuda:sm_80" ? "sm_90a" : "sm_80";
  const auto compiled = compile_cuda_image(nvrtc(), cuda_image(add_source, other));
  ASSERT_TRUE(compiled.ok) << compiled.log;
  EXPECT_THROW((void)backend.load_bytes(compiled.binary, image), std::runtime_error);
}

TEST_F(CudaDevice, AFaultIsToldOnceThenTheContextIsLost) {
  void* arguments[] = {&memory};
  LaunchRequest request;
  request.entry = module->entry("fault");
  request.arguments = arguments;
  backend.launch(request, nullptr);
  std::vector<std::string> words;
  for (int i = 0; i < 2; ++i) {
    try {
      backend.memory()->synchronize(0);
    } catch (const DeviceError& error) {
      words.emplace_back(error.what());
    }
  }
  ASSERT_EQ(words.size(), 2u);
  EXPECT_NE(words[0].find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << words[0];
  EXPECT_NE(words[0].find("/fault"), std::string::npos) << words[0];
  EXPECT_TRUE(words[1].starts_with("cuda:0: the device's context is lost since ")) << words[1];
}

// Beside cuLaunchKernel itself: what a launch costs the host.
TEST_F(CudaDevice, ALaunchCostsTheHostLittleMoreThanTheDriversOwn) {
  const auto driver = load_driver(driver_candidates());
  Context context = nullptr;
  ASSERT_EQ(driver.call.retain_primary(&context, 0), success);
  ASSERT_EQ(driver.call.push_context(context), success);
  add(nullptr, 0);
  std::int64_t n = 0;
  int by = 0;
  void* arguments[] = {&memory, &n, &by};
  LaunchRequest request;
  request.entry = module->entry("add");
  request.block[0] = 256;
  request.shared_bytes = 1024;
  request.arguments = arguments;
  const auto kernel = static_cast<Entry*>(request.entry)->kernel;
  const auto microseconds = [&](auto&& launch) {
    double best = 1e9;
    for (int round = 0; round < 20; ++round) {
      backend.memory()->synchronize(0);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 200; ++i) launch();
      best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 200);
    }
    return best;
  };
  const double own = microseconds([&] { backend.launch(request, nullptr); });
  const double bare =
      microseconds([&] { driver.call.launch(reinterpret_cast<Function>(kernel), 1, 1, 1, 256, 1, 1, 1024, nullptr, arguments, nullptr); });
  std::printf("a launch costs the host %.2f us, cuLaunchKernel alone %.2f us\n", own, bare);
  EXPECT_LT(own, bare + 0.5);
}

}  // namespace
}  // namespace ejk::cuda
