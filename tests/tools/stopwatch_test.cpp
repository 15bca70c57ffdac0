// Interleaved timing.
#include "tune/stopwatch.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ejk::tools {
namespace {

TEST(Stopwatch, MedianLeastAndSpreadOfSamples) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(least({3, 1, 2}), 1);
  EXPECT_EQ(spread({1, 1, 1, 1}), 0);
  EXPECT_GT(spread({1, 2, 3, 4}), 0);
}

TEST(Stopwatch, ThingsAreTimedInTurnAndPreparedBeforeEachSample) {
  std::string order;
  Timed a, b;
  a.run = [&] {
    order += 'a';
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  };
  b.run = [&] {
    order += 'b';
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  };
  b.prepare = [&] { order += 'p'; };
  measure({&a, &b}, 0.01, {});
  EXPECT_EQ(a.samples.size(), 5u);
  EXPECT_EQ(b.samples.size(), 5u);
  EXPECT_EQ(order,
            "aapbpb"
            "apbapbapbapbapb");
  EXPECT_GE(least(a.samples), 0.025);
}

TEST(Stopwatch, ShortRunsAreTimedInBatches) {
  int runs = 0;
  Timed timed;
  timed.run = [&] { ++runs; };
  measure({&timed}, 0.001, {});
  EXPECT_GT(timed.batch, 1);
  EXPECT_GT(runs, static_cast<int>(timed.samples.size()));
}

TEST(Stopwatch, AClockOfItsOwnIsBelievedAndAskedForTheWholeBatch) {
  std::vector<int> batches;
  Timed timed;
  timed.clock = [&](int count) {
    batches.push_back(count);
    return 1e-4 * count;
  };
  measure({&timed}, 0.001, {});
  ASSERT_GE(timed.samples.size(), 5u);
  EXPECT_NEAR(median(timed.samples), 1e-4, 1e-9);
  EXPECT_EQ(batches.back(), 2);  // of 200 us
}

}  // namespace
}  // namespace ejk::tools
