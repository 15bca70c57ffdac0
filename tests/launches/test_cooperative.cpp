// Cooperative launches: every work item or thread waits for all others, however many threads there are to run them.
#include <thread>

#include "backends/cpu/cooperative_grid.hpp"
#include "backends/cpu/grid_pool.hpp"
#include "ejk/ejk.hpp"
#include "launches/walk.hpp"

namespace ejk {
namespace {

Status walk_at_once(Walk& walk, Device device, std::int64_t items) {
  return call("walk_at_once", walk.tensors(device), {{"items", items}});
}

class Cooperative : public WalkTest, public ::testing::WithParamInterface<Device> {};

TEST_P(Cooperative, EveryStepSeesTheWholeOneBeforeIt) {
  for (const std::int64_t items : {1, 2, 5, 8, 23})
    for (const std::int64_t steps : {0, 1, 2, 7}) {
      Walk walk(steps, 333);
      ASSERT_EQ(message_of(walk_at_once(walk, GetParam(), items)), "");
      EXPECT_EQ(walk.out, walk.expected()) << steps << " steps by " << items;
    }
}

TEST_P(Cooperative, OnePlanServesManyCalls) {
  Walk walk(7, 100);
  ASSERT_EQ(message_of(walk_at_once(walk, GetParam(), 8)), "");
  const auto before = counters();
  for (int i = 0; i < 20; ++i) {
    walk.out.assign(walk.out.size(), -1);
    ASSERT_EQ(message_of(walk_at_once(walk, GetParam(), 8)), "");
    ASSERT_EQ(walk.out, walk.expected()) << "call " << i;
  }
  EXPECT_EQ(counters().plans, before.plans);
}

INSTANTIATE_TEST_SUITE_P(Places, Cooperative, ::testing::Values(host, warps, waves),
                         [](const auto& info) { return name_of_place(info.param); });

TEST_F(WalkTest, AGridThatDoesNotFitIsRefusedWithBothNumbers) {
  Walk walk(2, 100);
  const auto words = [&](Device device, std::int64_t items) {
    const auto message = message_of(walk_at_once(walk, device, items));
    return message.substr(std::min(message.find(": the coop"), message.size()));
  };
  EXPECT_EQ(words(host, 5000),
            ": the cooperative launch walk has 5000 work items with 4 bytes of scratch each, which wait for each other, so all must be "
            "resident at once; cpu:0 holds 4096: make its grid that small");
  EXPECT_EQ(
      words(warps, 300),
      ": the cooperative launch walk has 300 blocks of 64 threads with 4 bytes of dynamic shared memory, which wait for each other, so "
      "all must be resident at once; simt:0 holds 256: make its grid that small, or its blocks smaller");
  EXPECT_EQ(walk.out, std::vector<float>(100, -1.0f)) << "nothing was launched";
}

TEST_F(WalkTest, AnyNumberOfThreadsRunsAnyNumberOfItems) {
  for (const int threads : {1, 2, 5, 16}) {
    set_cpu_threads(threads);
    for (const std::int64_t items : {1, 3, 16, 200}) {
      Walk walk(7, 500);
      ASSERT_EQ(message_of(walk_at_once(walk, host, items)), "");
      EXPECT_EQ(walk.out, walk.expected()) << items << " items on " << threads << " threads";
    }
  }
  set_cpu_threads(0);
}

TEST_F(WalkTest, ThreadsThatCallAtOnceShareOnePool) {
  set_cpu_threads(4);
  std::vector<std::thread> threads;
  std::vector<int> wrong(6);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&wrong, t] {
      for (int i = 0; i < 30; ++i) {
        Walk walk(5, 64 + static_cast<std::int64_t>(t));
        wrong[t] += !walk_at_once(walk, host, 6) || walk.out != walk.expected();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(6));
  set_cpu_threads(0);
}

// ---- the CPU's launches by themselves ----

struct Rounds {
  std::atomic<std::int64_t> sum{0};
  std::int64_t barriers = 0, items = 0;
  std::int64_t leaver = -1;  // this item leaves before the last barrier
  std::atomic<int> wrong{0};
};

// Every item adds one, waits, and sees the whole round's sum, also in its scratch what it left there.
void count_rounds(void* const* arguments, const Group* group) {
  auto& rounds = *static_cast<Rounds*>(arguments[0]);
  auto* mine = static_cast<std::int64_t*>(group->shared);
  for (std::int64_t i = 0; i < rounds.barriers; ++i) {
    *mine = group->x + i;
    rounds.sum.fetch_add(1);
    if (group->x == rounds.leaver && i + 1 == rounds.barriers) return;
    cpu_grid_barrier().meet();
    if (rounds.sum.load() < (i + 1) * rounds.items || *mine != group->x + i) rounds.wrong.fetch_add(1);
    cpu_grid_barrier().meet();
  }
}

std::string run_rounds(Rounds& rounds) {
  LaunchRequest request;
  void* argument = &rounds;
  request.entry = reinterpret_cast<void*>(count_rounds);
  request.name = "count_rounds";
  request.grid[0] = rounds.items;
  request.shared_bytes = 8;
  request.cooperative = true;
  request.arguments = &argument;
  try {
    run_cooperative_grid(request);
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(CooperativeGrid, ALaunchFromInsideAnItemRunsOnItsThread) {
  for (const int threads : {1, 3}) {
    set_cpu_threads(threads);
    struct Outer {
      std::atomic<int> wrong{0};
    } outer;
    LaunchRequest request;
    void* argument = &outer;
    request.entry = reinterpret_cast<void*>(+[](void* const* arguments, const Group*) {
      Rounds rounds;
      rounds.barriers = 3, rounds.items = 7;
      static_cast<Outer*>(arguments[0])->wrong += !run_rounds(rounds).empty() || rounds.wrong || rounds.sum != 21;
      cpu_grid_barrier().meet();
    });
    request.grid[0] = 5;
    request.arguments = &argument;
    request.cooperative = true;
    for (int i = 0; i < 20; ++i) run_cooperative_grid(request);
    EXPECT_EQ(outer.wrong, 0) << threads << " threads";
  }
  set_cpu_threads(0);
}

TEST(CooperativeGrid, ABarrierThatNotAllReachIsAnErrorThatNamesTheItems) {
  for (const int threads : {1, 2, 4}) {
    set_cpu_threads(threads);
    for (int i = 0; i < 3; ++i) {
      Rounds uneven;
      uneven.barriers = 2, uneven.items = 4, uneven.leaver = 2;
      EXPECT_EQ(run_rounds(uneven),
                "count_rounds: work item (2, 0, 0) ended without grid barrier 3, at which work item (0, 0, 0) waits: every work item of a "
                "cooperative launch must come to each");
      Rounds even;
      even.barriers = 5, even.items = 9;
      EXPECT_EQ(run_rounds(even), "") << "the next launch is none the worse";
      EXPECT_EQ(even.wrong, 0);
    }
  }
  set_cpu_threads(0);
}

TEST(CooperativeGrid, MoreItemsThanThereAreStacksForAreRefused) {
  Rounds rounds;
  rounds.barriers = 2, rounds.items = most_cooperative_items;
  EXPECT_EQ(run_rounds(rounds), "");
  EXPECT_EQ(rounds.wrong, 0);
  ++rounds.items;
  EXPECT_EQ(run_rounds(rounds),
            "count_rounds: 4097 work items of a cooperative launch, at most 4096 are there at once; make its grid smaller");
}

}  // namespace
}  // namespace ejk
