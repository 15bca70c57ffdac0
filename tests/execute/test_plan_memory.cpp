// A service whose lengths change for ever: plans are small, and the process's table of them stays within its bytes.
#include <malloc.h>

#include <thread>

#include "execute/plan.hpp"
#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

class PlanMemoryTest : public StoreTest {
 protected:
  // One call of the kernel of tests/execute/data, of `size` elements.
  void shift(std::int64_t size, std::int64_t limit = 100) {
    const TensorView x(data_.data(), DType::f32, {size}), out(data_.data() + data_.size() / 2, DType::f32, {size});
    const auto status = call("shift", {{"x", x}, {"out", out}}, {{"limit", limit}});
    ASSERT_TRUE(status) << message_of(status);
  }
  static std::size_t heap() { return mallinfo2().uordblks; }
  std::vector<float> data_ = std::vector<float>(4096);
};

TEST_F(PlanMemoryTest, StaysWithinItsBytesFor100000Shapes) {
  setenv("EJKERNEL_PLAN_MEMORY", "1048576", 1);
  use_test_store();
  std::size_t early = 0;
  // An attribute of no consequence takes the shape's place in the key; every 7th call is one that is in use all the time.
  for (std::int64_t i = 0; i < 100'000; ++i) {
    shift(3, 100 + i);
    if (i % 7 == 0) shift(5, 100);
    if (HasFatalFailure()) return;
    if (i == 20'000) early = heap();
  }
  const auto memory = plan_memory();
  EXPECT_LE(memory.bytes, memory.limit);
  EXPECT_EQ(memory.limit, 1048576u);
  EXPECT_GT(memory.plans, 128u);
  EXPECT_LT(heap(), early + (std::size_t{2} << 20)) << "after 20,000 shapes and after 100,000";
  const auto plans = counters().plans;
  shift(5);
  EXPECT_EQ(counters().plans, plans) << "what is used all the time stays";
}

TEST_F(PlanMemoryTest, OfOnePlanIsAtMost8KB) {
  use_project_store();
  std::vector<float> memory(1 << 16);
  const auto view = [&](std::size_t at, std::vector<std::int64_t> shape) {
    return TensorView(memory.data() + at, DType::f32, std::span<const std::int64_t>(shape));
  };
  const auto pooling = [&](std::int64_t length) {
    return call("mean_pooling", {{"x", view(0, {1, length, 8})}, {"out", view(32768, {1, 8})}}, {});
  };
  const auto attention = [&](std::int64_t length) {
    return call("flash_attention",
                {{"q", view(0, {1, length, 1, 16})},
                 {"k", view(8192, {1, length, 1, 16})},
                 {"v", view(16384, {1, length, 1, 16})},
                 {"out", view(32768, {1, length, 1, 16})}},
                {});
  };
  for (const auto& each : {std::function<Status(std::int64_t)>(pooling), std::function<Status(std::int64_t)>(attention)}) {
    for (std::int64_t length = 1; length <= 32; ++length) ASSERT_EQ(message_of(each(length)), "");
    const auto before = plan_memory();
    const auto heap_before = heap();
    for (std::int64_t length = 33; length <= 160; ++length) ASSERT_EQ(message_of(each(length)), "");
    const auto after = plan_memory();
    ASSERT_EQ(after.plans - before.plans, 128u);
    EXPECT_LE((after.bytes - before.bytes) / 128, 8192u);
    EXPECT_LE((heap() - heap_before) / 128, 8192u) << "as malloc counts";
    EXPECT_LT((heap() - heap_before) / 128, 2 * (after.bytes - before.bytes) / 128) << "the table's account is about right";
  }
}

TEST_F(PlanMemoryTest, IsToldByInfoAndItsLimitChecked) {
  use_test_store();
  EXPECT_NE(info()->find("\"limit\": 67108864"), std::string::npos);
}

TEST_F(PlanMemoryTest, OfALimitThatIsNoneIsAnError) {
  setenv("EJKERNEL_PLAN_MEMORY", "12", 1);
  use_test_store();
  EXPECT_NE(message_of(info()).find("EJKERNEL_PLAN_MEMORY is '12'; expected a number of bytes from 1048576"), std::string::npos);
}

TEST_F(PlanMemoryTest, IsSharedByThreadsThatComeAndGo) {
  setenv("EJKERNEL_PLAN_MEMORY", "1048576", 1);
  use_test_store();
  shift(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> memory(8192);
      for (std::int64_t i = 0; i < 3000; ++i) {
        const TensorView x(memory.data(), DType::f32, {3}), out(memory.data() + 4096, DType::f32, {3});
        EXPECT_TRUE(call("shift", {{"x", x}, {"out", out}}, {{"limit", 100 + i * 4 + t % 2}}));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(plan_memory().bytes, plan_memory().limit);
}

}  // namespace
}  // namespace ejk
