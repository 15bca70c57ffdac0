// Streams, graphs and threads: work goes where it was put, and nothing of a call waits or allocates behind the caller's back.
#include <thread>

#include "device/fixture.hpp"

namespace ejk::streams_test {
namespace {

constexpr std::size_t count = 100'000;
constexpr std::int64_t scratch = 4 * count;

class Streams : public DeviceTest {
 protected:
  // Captures one call, replays it on inputs that change.
  static void replays(std::int64_t scratch_bytes, bool planned_before) {
    auto& driver = Driver::instance();
    OnGpu<float> x(numbers(count)), out(zeros(count));
    const OwnStream stream;
    if (planned_before) {
      ASSERT_TRUE(shift(x.view(), out.view(), 1, scratch_bytes, {stream.handle}));
      driver.wait(stream.handle);
    }
    driver.begin_capture(stream.handle);
    const auto status = shift(x.view(), out.view(), 2, scratch_bytes, {stream.handle});
    void* graph = driver.end_capture(stream.handle);
    ASSERT_TRUE(status) << message_of(status);
    EXPECT_EQ(driver.nodes_of_last_capture(), scratch_bytes ? 4u : 1u);  // with scratch: allocate, two launches, free
    for (const float first : {5.0f, -3000.0f}) {
      x.set(numbers(count, first));
      out.set(zeros(count));
      driver.launch_graph(graph, stream.handle);
      driver.wait(stream.handle);
      EXPECT_EQ(out.values(), plus(numbers(count, first), 2));
    }
    driver.free_graph(graph);
  }
};

TEST_F(Streams, ACapturedCallIsReplayed) { replays(0, true); }
TEST_F(Streams, ACapturedCallWithAWorkspaceIsReplayed) { replays(scratch, true); }
TEST_F(Streams, ACallMayBeCapturedBeforeItsImageIsLoaded) { replays(0, false); }
TEST_F(Streams, ACallWithAWorkspaceMayBeCapturedBeforeItsImageIsLoaded) { replays(scratch, false); }

TEST_F(Streams, WorkGoesToTheStreamItWasGiven) {
  auto& driver = Driver::instance();
  const OnGpu<float> x(numbers(count)), captured(zeros(count)), executed(zeros(count));
  const OwnStream recording, running;
  ASSERT_TRUE(shift(x.view(), executed.view(), 1));
  driver.wait();
  driver.begin_capture(recording.handle);
  const auto kept = shift(x.view(), captured.view(), 3, 0, {recording.handle});
  const auto done = shift(x.view(), executed.view(), 4, 0, {running.handle});
  void* graph = driver.end_capture(recording.handle);
  driver.wait(running.handle);
  ASSERT_TRUE(kept && done) << message_of(kept) << message_of(done);
  EXPECT_EQ(driver.nodes_of_last_capture(), 1u);
  EXPECT_EQ(executed.values(), plus(numbers(count), 4));
  EXPECT_EQ(captured.values(), zeros(count));
  driver.launch_graph(graph, recording.handle);
  driver.wait(recording.handle);
  EXPECT_EQ(captured.values(), plus(numbers(count), 3));
  driver.free_graph(graph);
}

TEST_F(Streams, CallsOfOneStreamFollowOneAnother) {
  const OnGpu<float> a(numbers(count)), b(zeros(count));
  const OwnStream stream;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(shift(a.view(), b.view(), 1, i % 2 ? scratch : 0, {stream.handle}));
    ASSERT_TRUE(shift(b.view(), a.view(), 1, 0, {stream.handle}));
  }
  Driver::instance().wait(stream.handle);
  EXPECT_EQ(a.values(), plus(numbers(count), 100));
}

TEST_F(Streams, WorkspacesOfTwoStreamsAreApart) {
  const OnGpu<float> x(numbers(count)), y(numbers(count, 7)), from_x(zeros(count)), from_y(zeros(count));
  const OwnStream first, second;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(shift(x.view(), from_x.view(), i, scratch, {first.handle}));
    ASSERT_TRUE(shift(y.view(), from_y.view(), i, scratch, {second.handle}));
  }
  Driver::instance().wait();
  EXPECT_EQ(from_x.values(), plus(numbers(count), 99));
  EXPECT_EQ(from_y.values(), plus(numbers(count, 7), 99));
}

TEST_F(Streams, EightThreadsEachWithItsOwn) {
  constexpr int threads = 8, rounds = 200;
  std::vector<std::string> wrong(threads);
  const auto work = [&](int thread) {
    auto& driver = Driver::instance();
    driver.use_on_this_thread();
    const OwnStream stream;
    for (int i = 0; i < rounds && wrong[static_cast<std::size_t>(thread)].empty(); ++i) {
      const auto size = static_cast<std::size_t>(1 + (i * 37 + thread * 11) % 999);
      const OnGpu<float> x(numbers(size, static_cast<float>(thread))), out(zeros(size));
      const auto status = shift(x.view(), out.view(), i, i % 3 ? 0 : static_cast<std::int64_t>(4 * size), {stream.handle});
      driver.wait(stream.handle);
      if (!status)
        wrong[static_cast<std::size_t>(thread)] = message_of(status);
      else if (out.values() != plus(numbers(size, static_cast<float>(thread)), static_cast<float>(i)))
        wrong[static_cast<std::size_t>(thread)] = "round " + std::to_string(i) + " is wrong";
    }
  };
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) running.emplace_back(work, thread);
  for (auto& thread : running) thread.join();
  EXPECT_EQ(wrong, std::vector<std::string>(threads));
}

// What the device keeps for that stream serves one call at a time: the others take the pool's.
TEST_F(Streams, EightThreadsOnTheDefaultStream) {
  constexpr int threads = 8, calls = 200;
  std::vector<std::string> wrong(threads);
  const auto work = [&](int thread) {
    auto& driver = Driver::instance();
    driver.use_on_this_thread();
    const OnGpu<float> x(numbers(count, static_cast<float>(thread))), out(zeros(count));
    for (int i = 0; i < calls; ++i) {
      const auto status = shift(x.view(), out.view(), i, scratch);
      if (!status) wrong[static_cast<std::size_t>(thread)] = message_of(status);
    }
    driver.wait();
    if (out.values() != plus(numbers(count, static_cast<float>(thread)), calls - 1)) wrong[static_cast<std::size_t>(thread)] += " wrong";
  };
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) running.emplace_back(work, thread);
  for (auto& thread : running) thread.join();
  EXPECT_EQ(wrong, std::vector<std::string>(threads));
}

// Context made current by nobody: ejk takes the device's primary one for the call.
TEST_F(Streams, AThreadWithoutAContextMayCall) {
  const OnGpu<float> x(numbers(count)), out(zeros(count));
  std::string message;
  std::thread([&] { message = message_of(shift(x.view(), out.view(), 6, scratch)); }).join();
  Driver::instance().wait();
  EXPECT_EQ(message, "");
  EXPECT_EQ(out.values(), plus(numbers(count), 6));
}

}  // namespace
}  // namespace ejk::streams_test
