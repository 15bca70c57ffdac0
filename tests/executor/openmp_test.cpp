// CPU launches in a program that computes on OpenMP: on its threads, never more of them than it has, across forks.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/executor.hpp"
#include "backends/cpu/grid_pool.hpp"

namespace ejk {
namespace {

using namespace std::chrono_literals;

// 0: work() returned 0. A child that hangs is ended after a minute.
int in_child(const std::function<int()>& work) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    _exit(work());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void launch(CpuEntry entry, void* argument, std::int64_t cells, std::int64_t shared = 0) {
  void* arguments[] = {&argument};
  LaunchRequest request;
  request.entry = reinterpret_cast<void*>(entry);
  request.grid[0] = cells;
  request.shared_bytes = shared;
  request.arguments = arguments;
  run_grid(request);
}

// What ran where: how often each cell did, on which thread, how many at once.
struct Seen {
  explicit Seen(std::int64_t cells, std::chrono::microseconds each = 0us)
      : length(each), times(static_cast<std::size_t>(cells)), threads(static_cast<std::size_t>(cells)) {
    launch(cell, this, cells, 256);
  }
  bool each_once() const {
    return std::all_of(times.begin(), times.end(), [](const auto& count) { return count == 1; });
  }
  std::set<int> threads_seen() const { return {threads.begin(), threads.end()}; }

  std::chrono::microseconds length;
  std::vector<std::atomic<int>> times;
  std::vector<int> threads;
  std::atomic<int> inside{0}, most{0};

 private:
  static void cell(void* const* arguments, const Group* group) {
    auto& seen = **static_cast<Seen* const*>(arguments[0]);
    const int now = ++seen.inside;
    for (int most = seen.most; most < now && !seen.most.compare_exchange_weak(most, now);) continue;
    ++seen.times[static_cast<std::size_t>(group->x)];
    seen.threads[static_cast<std::size_t>(group->x)] = static_cast<int>(gettid());
    if (seen.length > 0us) std::this_thread::sleep_for(seen.length);
    --seen.inside;
  }
};

// The libraries, and what was found before they were loaded and at that moment.
class Program : public ::testing::Environment {
 public:
  static inline std::string executor_before, executor_beside_another, executor_after;
  static inline int child_that_loads = -1;
  static inline int (*team)(int*, int) = nullptr;
  static inline void (*set_num_threads)(int) = nullptr;
  static inline void (*parallel)(void (*)(void*), void*) = nullptr;

  void SetUp() override {
    set_cpu_threads(4);
    ASSERT_TRUE(Seen(100).each_once());
    executor_before = cpu_executor();
    child_that_loads = in_child([] {
      load_torch(RTLD_GLOBAL);  // as PyTorch itself loads its runtime
      std::this_thread::sleep_for(20ms);
      return Seen(100).each_once() && cpu_executor().starts_with("OpenMP of libtorch_cpu.so (") ? 0 : 1;
    });
    ASSERT_TRUE(dlopen(EJK_FAKE_OTHER, RTLD_NOW | RTLD_LOCAL)) << dlerror();
    std::this_thread::sleep_for(20ms);
    executor_beside_another = cpu_executor();
    load_torch(RTLD_LOCAL);
    ASSERT_TRUE(team && set_num_threads && parallel);
    std::this_thread::sleep_for(20ms);
    ASSERT_TRUE(Seen(100).each_once());
    executor_after = cpu_executor();
  }

 private:
  static void load_torch(int scope) {
    void* library = dlopen(EJK_FAKE_TORCH, RTLD_NOW | scope);
    if (!library) return;
    team = reinterpret_cast<decltype(team)>(dlsym(library, "fake_team"));
    set_num_threads = reinterpret_cast<decltype(set_num_threads)>(dlsym(library, "fake_set_num_threads"));
    parallel = reinterpret_cast<decltype(parallel)>(dlsym(library, "fake_parallel"));
  }
};
[[maybe_unused]] const auto* program = ::testing::AddGlobalTestEnvironment(new Program);

class OpenMp : public ::testing::Test {
 protected:
  OpenMp() {
    set_cpu_threads(8);
    Program::set_num_threads(3);
  }
  ~OpenMp() override { use_own_cpu_pool(false); }
  static std::set<int> team() {
    int threads[64];
    const int count = Program::team(threads, 64);
    return {threads, threads + count};
  }
};

TEST_F(OpenMp, IsFoundWhenItIsLoadedAndCountsForPyTorchsSakeAlone) {
  EXPECT_EQ(Program::executor_before, "own pool");
  EXPECT_EQ(Program::executor_beside_another, "own pool") << "a runtime that another library brought is not the program's";
  EXPECT_TRUE(Program::executor_after.starts_with("OpenMP of libtorch_cpu.so (/")) << Program::executor_after;
  EXPECT_NE(Program::executor_after.find(EJK_RUNTIME_NAME), std::string::npos) << Program::executor_after;
}

TEST_F(OpenMp, LoadedInAForkedChildIsFoundThere) { EXPECT_EQ(Program::child_that_loads, 0); }

TEST_F(OpenMp, LendsItsOwnThreads) {
  const auto lent = team();
  ASSERT_EQ(lent.size(), 3U);
  const Seen seen(60, 1000us);
  EXPECT_TRUE(seen.each_once());
  EXPECT_EQ(seen.most, 3) << "as many as the runtime has, though 8 are allowed";
  EXPECT_EQ(seen.threads_seen(), lent);
  EXPECT_EQ(team(), lent) << "and the runtime keeps them";
}

TEST_F(OpenMp, OfFewerThreadsThanTheRuntimeHasTakesThoseAlone) {
  const auto before = team();
  set_cpu_threads(2);
  const Seen seen(20, 1000us);
  EXPECT_TRUE(seen.each_once());
  EXPECT_EQ(seen.most, 2);
  EXPECT_EQ(team(), before) << "the team was not made smaller: its threads would have to be started again";
}

TEST_F(OpenMp, OfOneThreadIsTheCallers) {
  for (const auto& [ours, theirs] : {std::pair(1, 3), std::pair(8, 1)}) {
    set_cpu_threads(ours);
    Program::set_num_threads(theirs);
    const Seen seen(20);
    EXPECT_TRUE(seen.each_once());
    EXPECT_EQ(seen.threads_seen(), std::set<int>{static_cast<int>(gettid())});
  }
}

TEST_F(OpenMp, WithinAParallelRegionIsNotOpenedAgain) {
  std::atomic<int> good{0};
  Program::parallel(
      [](void* data) {
        const Seen seen(40, 50us);
        if (seen.each_once() && seen.threads_seen() == std::set<int>{static_cast<int>(gettid())}) ++*static_cast<std::atomic<int>*>(data);
      },
      &good);
  EXPECT_EQ(good, 2);
}

TEST_F(OpenMp, RunsEveryCellOfEveryGridOnce) {
  for (const int threads : {2, 3, 5}) {
    Program::set_num_threads(threads);
    for (std::int64_t cells = 1; cells < 400; cells += 1 + cells / 9) EXPECT_TRUE(Seen(cells).each_once()) << cells;
  }
}

TEST_F(OpenMp, OfManyCallersAtOnceRunsEveryCellOnce) {
  std::atomic<int> bad{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 4; ++i)
      callers.emplace_back([&bad, i] {
        for (int round = 0; round < 100; ++round)
          if (!Seen(3 + i).each_once()) ++bad;
      });
  }
  EXPECT_EQ(bad, 0);
}

TEST_F(OpenMp, OfWorkThatWaitsForOthersRunsThemAtOnce) {
  struct Meeting {
    std::atomic<int> here{0}, told{0};
  } meeting;
  const auto meet = [](void* work, int, int together) {
    auto& at = *static_cast<Meeting*>(work);
    at.told = together;
    for (++at.here; at.here < together;) std::this_thread::yield();
  };
  ASSERT_TRUE(executor_of_this_thread().run(3, meet, &meeting));
  EXPECT_EQ(meeting.told, 3);
  EXPECT_EQ(meeting.here, 3);
}

TEST_F(OpenMp, IsLeftAloneWhereTheOwnPoolIsAskedFor) {
  use_own_cpu_pool(true);
  EXPECT_EQ(cpu_executor(), "own pool (EJKERNEL_EXECUTOR=own)");
  const auto lent = team();
  set_cpu_threads(4);
  const Seen seen(60, 1000us);
  EXPECT_TRUE(seen.each_once());
  EXPECT_EQ(seen.most, 4);
  std::vector<int> both;
  const auto ours = seen.threads_seen();
  std::set_intersection(lent.begin(), lent.end(), ours.begin(), ours.end(), std::back_inserter(both));
  EXPECT_EQ(both, std::vector<int>{static_cast<int>(gettid())}) << "the caller takes part";
}

TEST_F(OpenMp, OfAForkedChildIsUsedIfItLivesOnThere) {
  ASSERT_EQ(team().size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Seen(50).each_once());
    const int child = in_child([] {
      const bool openmp = cpu_executor().starts_with("OpenMP");
      return openmp == EJK_RUNTIME_SURVIVES_FORK && Seen(100, 10us).each_once() && Seen(50).each_once() ? 0 : 1;
    });
    EXPECT_EQ(child, 0);
    const int grandchild = in_child([] { return in_child([] { return Seen(100, 10us).each_once() ? 0 : 1; }); });
    EXPECT_EQ(grandchild, 0);
  }
  EXPECT_TRUE(cpu_executor().starts_with("OpenMP")) << "the parent's is as it was";
}

TEST_F(OpenMp, OfAChildForkedDuringALaunchIsFree) {
  std::atomic<bool> done{false};
  std::jthread busy([&done] {
    while (!done) (void)Seen(6, 200us);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(in_child([] { return Seen(100, 10us).each_once() ? 0 : 1; }), 0);
  done = true;
}

}  // namespace
}  // namespace ejk
