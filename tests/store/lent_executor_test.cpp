// CPU launches on a pool that the caller hands in: tasks that come at once, late, never, or on the caller's own thread.
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "backends/cpu/grid_pool.hpp"
#include "backends/cpu/lent_executor.hpp"
#include "fixtures.hpp"

namespace ejk::lent_executor_test {
namespace {

using namespace std::chrono_literals;

struct Task {
  void (*run)(void*);
  void* data;
};

// Keeps tasks until it is told what to do with them.
struct Pool {
  std::mutex mutex;
  std::vector<Task> tasks;
  std::vector<std::jthread> threads;
  static int keep(void* context, void (*task)(void*), void* data) {
    auto& pool = *static_cast<Pool*>(context);
    const std::lock_guard lock(pool.mutex);
    pool.tasks.push_back({task, data});
    return 0;
  }
  static int start(void* context, void (*task)(void*), void* data) {
    auto& pool = *static_cast<Pool*>(context);
    const std::lock_guard lock(pool.mutex);
    pool.threads.emplace_back(task, data);
    return 0;
  }
  static int run_here(void*, void (*task)(void*), void* data) {
    task(data);
    return 0;
  }
  static int refuse(void*, void (*)(void*), void*) { return 1; }
};

struct Seen {
  std::atomic<int> cells[200] = {};
  std::atomic<int> inside{0}, most{0};
  std::chrono::microseconds each = 0us;
  bool each_once(std::int64_t count) const {
    return std::all_of(cells, cells + count, [](const auto& times) { return times == 1; });
  }
};

void count_cell(void* const* arguments, const Group* group) {
  auto& seen = **static_cast<Seen* const*>(arguments[0]);
  const int now = ++seen.inside;
  for (int most = seen.most; most < now && !seen.most.compare_exchange_weak(most, now);) continue;
  ++seen.cells[group->x];
  if (seen.each > 0us) std::this_thread::sleep_for(seen.each);
  --seen.inside;
}

class LentExecutorTest : public ::testing::Test {
 protected:
  LentExecutorTest() { set_cpu_threads(8); }
  ~LentExecutorTest() override { set_cpu_threads(0); }

  void run(LentExecutor::Schedule schedule, std::int64_t cells = 200, int threads = 4) {
    LentExecutor executor(threads, schedule, &pool_);
    const UseCpuExecutor use(executor);
    Seen* seen = &seen_;
    void* arguments[] = {&seen};
    LaunchRequest request;
    request.entry = reinterpret_cast<void*>(&count_cell);
    request.grid[0] = cells;
    request.shared_bytes = 64;
    request.arguments = arguments;
    run_grid(request);
  }

  Pool pool_;
  Seen seen_;
};

TEST_F(LentExecutorTest, SharesCellsAmongAsManyAsItHas) {
  seen_.each = 1000us;
  run(Pool::start);
  EXPECT_TRUE(seen_.each_once(200));
  EXPECT_GT(seen_.most, 1);
  EXPECT_LE(seen_.most, 4);
  EXPECT_LE(pool_.threads.size(), 3u);
}

TEST_F(LentExecutorTest, IsAskedForNoMoreThanSetThreadsAllows) {
  set_cpu_threads(2);
  seen_.each = 200us;
  run(Pool::start);
  EXPECT_TRUE(seen_.each_once(200));
  EXPECT_LE(pool_.threads.size(), 1u);
}

TEST_F(LentExecutorTest, OfTasksThatNeverBeginIsNotWaitedFor) {
  run(Pool::keep);
  EXPECT_TRUE(seen_.each_once(200));
  EXPECT_EQ(seen_.most, 1);
  ASSERT_FALSE(pool_.tasks.empty());
  for (const auto& task : pool_.tasks) task.run(task.data);  // late: they find nothing to do, and free the job
  EXPECT_TRUE(seen_.each_once(200));
}

TEST_F(LentExecutorTest, ThatRunsTasksWhereTheyAreScheduledWorks) {
  run(Pool::run_here);
  EXPECT_TRUE(seen_.each_once(200));
  EXPECT_EQ(seen_.most, 1);
}

TEST_F(LentExecutorTest, ThatTakesNoTasksLeavesAllToTheCaller) {
  run(Pool::refuse);
  EXPECT_TRUE(seen_.each_once(200));
}

TEST_F(LentExecutorTest, OfOneThreadIsNotAsked) {
  run(Pool::keep, 200, 1);
  EXPECT_TRUE(seen_.each_once(200));
  EXPECT_TRUE(pool_.tasks.empty());
}

// Work whose participants wait for one another, by each kind of pool.
struct Meeting {
  std::atomic<int> here{0}, told{0};
  static void share(void* work, int, int together) {
    auto& at = *static_cast<Meeting*>(work);
    at.told = together;
    for (++at.here; at.here < together;) std::this_thread::yield();
  }
};

TEST_F(LentExecutorTest, WorkThatWaitsForItselfHasThoseThatBegin) {
  int most = 0;
  for (int i = 0; i < 100; ++i) {
    Meeting meeting;
    LentExecutor executor(4, Pool::start, &pool_);
    ASSERT_TRUE(executor.run_at_once(4, Meeting::share, &meeting));
    EXPECT_EQ(meeting.here, meeting.told);
    most = std::max<int>(most, meeting.told);
  }
  EXPECT_GT(most, 1) << "in a hundred calls none of three threads began in time";
  EXPECT_LE(most, 4);
}

TEST_F(LentExecutorTest, WorkThatWaitsForItselfIsTheCallersWhereNobodyBegins) {
  for (const auto schedule : {Pool::keep, Pool::run_here, Pool::refuse}) {
    Meeting meeting;
    LentExecutor executor(4, schedule, &pool_);
    ASSERT_TRUE(executor.run_at_once(4, Meeting::share, &meeting));
    EXPECT_EQ(meeting.told, 1);
  }
  for (const auto& task : pool_.tasks) task.run(task.data);  // late
}

// A pool of one thread whose thread makes the call: nobody else would ever run its tasks.
TEST_F(LentExecutorTest, CalledFromItsOwnOnlyThreadDoesNotWaitForItself) {
  std::jthread([this] {
    run(Pool::keep);
    for (const auto& task : pool_.tasks) task.run(task.data);
  }).join();
  EXPECT_TRUE(seen_.each_once(200));
}

TEST_F(LentExecutorTest, ManyTimesInARowNeverLosesACell) {
  for (int i = 0; i < 300; ++i) {
    const std::int64_t cells = 2 + i % 40;
    for (auto& cell : seen_.cells) cell = 0;
    run(Pool::start, cells, 3);
    ASSERT_TRUE(seen_.each_once(cells)) << i;
    pool_.threads.clear();  // joins
  }
}

}  // namespace
}  // namespace ejk::lent_executor_test
