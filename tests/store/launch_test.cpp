// Launches on the CPU: every cell of every grid exactly once, whoever calls, with scratch and without allocation.
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <random>
#include <thread>

#include "backends/cpu/grid_pool.hpp"
#include "fixtures.hpp"

namespace {
std::atomic<long> allocations{0};
}

// Counts what the whole program allocates with new.
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
// Not inlined: g++ 12 warns where it sees the free() of one and not the malloc() of the other.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ejk::launch_test {
namespace {

struct Counts {
  std::int64_t grid[3];
  std::vector<std::atomic<int>> seen;
  std::atomic<bool> wrong{false};
  Counts(std::int64_t x, std::int64_t y, std::int64_t z) : grid{x, y, z}, seen(static_cast<std::size_t>(x * y * z)) {}
  bool each_once() const {
    return !wrong && std::all_of(seen.begin(), seen.end(), [](const auto& count) { return count == 1; });
  }
};

// Its one argument: a pointer to Counts.
void count_cell(void* const* arguments, const Group* group) {
  auto& counts = **static_cast<Counts* const*>(arguments[0]);
  if (group->grid_x != counts.grid[0] || group->grid_y != counts.grid[1] || group->grid_z != counts.grid[2]) counts.wrong = true;
  const auto at = (group->z * group->grid_y + group->y) * group->grid_x + group->x;
  if (group->x >= group->grid_x || group->y >= group->grid_y || at < 0 || at >= static_cast<std::int64_t>(counts.seen.size())) {
    counts.wrong = true;
  } else {
    ++counts.seen[static_cast<std::size_t>(at)];
  }
}

template <class T>
void launch(CpuEntry entry, T* argument, std::int64_t x, std::int64_t y = 1, std::int64_t z = 1, std::int64_t shared = 0) {
  void* arguments[] = {&argument};
  LaunchRequest request;
  request.entry = reinterpret_cast<void*>(entry);
  request.grid[0] = x;
  request.grid[1] = y;
  request.grid[2] = z;
  request.shared_bytes = shared;
  request.arguments = arguments;
  cpu_backend().launch(request, nullptr);
}

bool covers(std::int64_t x, std::int64_t y, std::int64_t z) {
  Counts counts(x, y, z);
  launch(count_cell, &counts, x, y, z);
  return counts.each_once();
}

class Launch : public ::testing::Test {
 protected:
  ~Launch() override { set_cpu_threads(0); }
};

TEST_F(Launch, RunsEveryCellOfEveryGridOnce) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> extent(1, 40);
  for (int threads : {1, 2, 3, 4, 9, 17}) {
    set_cpu_threads(threads);
    EXPECT_EQ(cpu_threads(), threads);
    for (std::int64_t cells : {1, 2, 3, 7, 64, 1000, 30000})
      EXPECT_TRUE(covers(cells, 1, 1)) << cells << " cells, " << threads << " threads";
    for (int i = 0; i < 60; ++i) {
      const auto x = extent(random), y = extent(random), z = extent(random);
      EXPECT_TRUE(covers(x, y, z)) << x << " x " << y << " x " << z << ", " << threads << " threads";
    }
  }
}

TEST_F(Launch, OfAnEmptyGridRunsNothing) {
  int untouched = 0;
  const auto touch = [](void* const* arguments, const Group*) { ++**static_cast<int* const*>(arguments[0]); };
  launch(touch, &untouched, 0, 5, 5);
  launch(touch, &untouched, 5, 0, 5);
  launch(touch, &untouched, 5, 5, -1);
  EXPECT_EQ(untouched, 0);
}

TEST_F(Launch, OfAnImpossibleGridIsRefused) {
  Counts counts(1, 1, 1);
  EXPECT_THROW(launch(count_cell, &counts, std::int64_t{1} << 40, std::int64_t{1} << 40), std::runtime_error);
}

TEST_F(Launch, WithImpossibleScratchIsRefusedAndTheNextOneWorks) {
  set_cpu_threads(2);
  Counts counts(8, 1, 1);
  EXPECT_THROW(launch(count_cell, &counts, 8, 1, 1, std::int64_t{1} << 61), std::runtime_error);
  EXPECT_TRUE(covers(8, 1, 1));
}

TEST_F(Launch, ManyTimesInARowNeverLosesACell) {
  for (int threads : {2, 4}) {
    set_cpu_threads(threads);
    for (int i = 0; i < 20000; ++i) ASSERT_TRUE(covers(2 + i % 7, 1, 1)) << i;
  }
}

TEST_F(Launch, AfterPausesThatLetHelpersSleepNeverLosesACell) {
  set_cpu_threads(3);
  for (int i = 0; i < 400; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(i % 150));
    ASSERT_TRUE(covers(5, 1, 1)) << i;
  }
}

TEST_F(Launch, UsesTheThreadsItIsGiven) {
  set_cpu_threads(3);
  struct Ids {
    std::atomic<int> inside{0}, most{0};
  } ids;
  const auto meet = [](void* const* arguments, const Group*) {
    auto& here = **static_cast<Ids* const*>(arguments[0]);
    const int now = ++here.inside;
    for (int most = here.most; most < now && !here.most.compare_exchange_weak(most, now);) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --here.inside;
  };
  launch(meet, &ids, 12);
  EXPECT_EQ(ids.most, 3);
}

TEST_F(Launch, FromInsideACellRunsThere) {
  for (int threads : {1, 4}) {
    set_cpu_threads(threads);
    std::atomic<int> good{0};
    const auto outer = [](void* const* arguments, const Group*) {
      if (covers(6, 5, 4)) ++**static_cast<std::atomic<int>* const*>(arguments[0]);
    };
    launch(outer, &good, 50);
    EXPECT_EQ(good, 50);
  }
}

TEST_F(Launch, FromInsideACellHasScratchOfItsOwn) {
  set_cpu_threads(4);
  std::atomic<int> wrong{0};
  using Wrong = std::atomic<int>;
  const auto outer = [](void* const* arguments, const Group* group) {
    auto& count = **static_cast<Wrong* const*>(arguments[0]);
    std::memset(group->shared, 0x11, 5000);
    const auto inner = [](void* const*, const Group* nested) { std::memset(nested->shared, 0x22, 9000); };
    launch(+inner, &count, 3, 1, 1, 9000);
    const auto* bytes = static_cast<const unsigned char*>(group->shared);
    for (int i = 0; i < 5000; ++i)
      if (bytes[i] != 0x11) ++count;
  };
  launch(outer, &wrong, 40, 1, 1, 5000);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Launch, GivesAlignedScratchToEachWorker) {
  set_cpu_threads(4);
  std::atomic<int> wrong{0};
  using Wrong = std::atomic<int>;
  const auto cell = [](void* const* arguments, const Group* group) {
    auto& count = **static_cast<Wrong* const*>(arguments[0]);
    if (reinterpret_cast<std::uintptr_t>(group->shared) % 64 != 0) ++count;
    std::memset(group->shared, static_cast<int>(group->x), 10000);
    std::this_thread::yield();
    for (int i = 0; i < 10000; i += 99)
      if (static_cast<unsigned char*>(group->shared)[i] != static_cast<unsigned char>(group->x)) ++count;
  };
  launch(cell, &wrong, 500, 1, 1, 10000);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Launch, FromManyThreadsAtOnceWorks) {
  set_cpu_threads(3);
  std::atomic<int> bad{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 6; ++i)
      callers.emplace_back([&bad, i] {
        for (int round = 0; round < 500; ++round)
          if (!covers(3 + i, 2, 1 + round % 5)) ++bad;
      });
  }
  EXPECT_EQ(bad, 0);
}

TEST_F(Launch, WhileTheThreadCountChangesWorks) {
  std::atomic<bool> done{false};
  std::jthread changer([&done] {
    for (int i = 0; !done; ++i) {
      set_cpu_threads(1 + i % 5);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(covers(9, 3, 1));
  done = true;
}

TEST_F(Launch, AfterForkWorksInChildAndParent) {
  set_cpu_threads(3);
  ASSERT_TRUE(covers(100, 1, 1));
  for (int i = 0; i < 5; ++i) {
    const auto child = store::start_child([] { return covers(100, 3, 1) && covers(50, 1, 1) ? 0 : 1; });
    EXPECT_TRUE(covers(100, 1, 1));
    EXPECT_EQ(store::wait_for(child), 0);
  }
}

TEST_F(Launch, AllocatesNothingAfterWarmUp) {
  for (int threads : {1, 2, 4}) {
    set_cpu_threads(threads);
    std::atomic<int> sum{0};
    const auto cell = [](void* const* arguments, const Group*) { ++**static_cast<std::atomic<int>* const*>(arguments[0]); };
    const auto rounds = [&](int count) {
      for (int i = 0; i < count; ++i) {
        launch(cell, &sum, 16, 1, 1, 4096);
        if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // helpers fall asleep and are woken
      }
    };
    rounds(100);
    const long before = allocations;
    rounds(300);
    EXPECT_EQ(allocations - before, 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace ejk::launch_test
