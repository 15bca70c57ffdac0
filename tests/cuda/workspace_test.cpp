// Workspaces over a fake driver that records every call: the pool's, and the one that a device keeps for its default stream.
#include "backends/gpu/gpu_workspace.hpp"

#include <thread>

#include "backends/cuda/cuda.hpp"
#include "cuda/cuda_image.hpp"
#include "cuda/fake_driver.hpp"

namespace ejk::cuda::workspace_test {
namespace {

FakeDriver& fake() { return FakeDriver::instance(); }

const Nvrtc& no_nvrtc() {
  static const Nvrtc none = load_nvrtc({});
  return none;
}

// Each test has a backend of its own. It is never destroyed, as the process's own.
class CudaWorkspace : public testing::Test {
 protected:
  CudaWorkspace() { FakeDriver::reset(); }
  // On a thread without a context the primary one is current for the call only: here it stays, as PyTorch has it.
  void SetUp() override { fake().context_stack = {0}; }

  void* acquire(std::int64_t bytes, void* stream = nullptr) { return backend.acquire_workspace(0, stream, bytes); }
  void release(void* workspace, void* stream = nullptr) { backend.release_workspace(0, stream, workspace); }
  void* use(std::int64_t bytes, void* stream = nullptr) {
    void* workspace = acquire(bytes, stream);
    release(workspace, stream);
    return workspace;
  }

  Backend& backend = lasting(make_backend(fake_driver, no_nvrtc));
  void* stream = &backend;  // any address that is not null
};

TEST_F(CudaWorkspace, IsZeroedOnItsStream) {
  void* memory = acquire(4096, stream);
  fake().context_stack.clear();  // no context is current: the device's is made so for the call
  backend.zero(0, stream, memory, 1000);
  ASSERT_EQ(fake().fills.size(), 1u);
  EXPECT_EQ(fake().fills[0].address, reinterpret_cast<Address>(memory));
  EXPECT_EQ(fake().fills[0].bytes, 1000u);
  EXPECT_EQ(fake().fills[0].value, 0);
  EXPECT_EQ(fake().fills[0].stream, stream);
  EXPECT_TRUE(fake().context_stack.empty());
  fake().next_result["fill"] = 1;
  try {
    backend.zero(0, stream, memory, 1000);
    FAIL() << "the driver refused";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "zeroing 1000 bytes of a workspace on cuda:0: CUDA_ERROR_INVALID_VALUE: the driver's words");
  }
  release(memory, stream);
}

TEST_F(CudaWorkspace, OfAStreamIsThePools) {
  void* memory = acquire(4096, stream);
  EXPECT_EQ(fake().memory.size(), 1u);
  EXPECT_EQ(fake().threshold, UINT64_MAX) << "the pool keeps what is freed";
  release(memory, stream);
  EXPECT_TRUE(fake().memory.empty());
  use(1, stream);
  EXPECT_EQ(fake().count("threshold"), 1u);
}

TEST_F(CudaWorkspace, AThresholdThatSomebodyChoseStays) {
  fake().threshold = 1 << 20;
  use(1, stream);
  EXPECT_EQ(fake().threshold, 1u << 20);
}

TEST_F(CudaWorkspace, OfTheDefaultStreamIsKeptAndGrows) {
  void* first = use(4096);
  EXPECT_EQ(use(4096), first);
  EXPECT_EQ(use(1), first);
  ASSERT_EQ(fake().memory.size(), 1u);
  use(5000);
  ASSERT_EQ(fake().memory.size(), 1u) << "the smaller one is freed";
  EXPECT_GE(fake().memory.begin()->second, 5000u);
}

TEST_F(CudaWorkspace, AKeptOneHasOneHolder) {
  void* kept = acquire(4096);
  void* pooled = acquire(4096);
  EXPECT_NE(pooled, kept);
  release(pooled);
  EXPECT_EQ(fake().memory.size(), 1u);
  release(kept);
  EXPECT_EQ(use(4096), kept);
}

TEST_F(CudaWorkspace, OfAnotherContextIsThePools) {
  void* kept = use(4096);
  fake().context = reinterpret_cast<Context>(&backend);
  EXPECT_NE(use(4096), kept);
  EXPECT_NE(use(1 << 20), kept);
  EXPECT_EQ(fake().memory.size(), 1u);
  fake().context = nullptr;
  EXPECT_EQ(use(4096), kept);
}

TEST_F(CudaWorkspace, ALargeOneIsThePools) {
  use(gpu::most_kept_workspace + 1);
  EXPECT_TRUE(fake().memory.empty());
}

TEST_F(CudaWorkspace, WithoutMemoryNothingStaysTaken) {
  use(4096);
  fake().next_result["allocate"] = out_of_memory;
  EXPECT_THROW(acquire(5000), DeviceError);
  EXPECT_TRUE(fake().memory.empty());
  fake().next_result.clear();
  void* kept = use(5000);
  EXPECT_EQ(use(5000), kept);
}

TEST_F(CudaWorkspace, ThreadsNeverShareOne) {
  std::atomic<int> shared = 0;
  const auto work = [&](int thread) {
    for (int i = 0; i < 2000; ++i) {
      auto* workspace = static_cast<int*>(acquire(i % 7 ? 64 : 64 << i % 5));
      *workspace = thread;
      std::this_thread::yield();
      shared += *workspace != thread;
      release(workspace);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared, 0);
  EXPECT_EQ(fake().memory.size(), 1u);
}

}  // namespace
}  // namespace ejk::cuda::workspace_test
