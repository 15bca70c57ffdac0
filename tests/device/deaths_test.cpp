// Processes that are killed inside a launch, and memory that is out while a graph is captured: the next call is right all the same.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "device/fixture.hpp"

namespace ejk::deaths_test {
namespace {

constexpr std::size_t count = 100'000;

class Deaths : public DeviceTest {
 protected:
  static void expect_right_calls() {
    const OnGpu<float> x(numbers(count)), out(zeros(count));
    const auto status = shift(x.view(), out.view(), 2, 4 * count);
    ASSERT_TRUE(status) << message_of(status);
    Driver::instance().wait();
    EXPECT_EQ(out.values(), plus(numbers(count), 2));
  }
};

class DeathChild : public DeviceTest {};

// Says that it is at work, and then is, until it is killed: the queue is never empty.
TEST_F(DeathChild, DISABLED_Launches) {
  const OnGpu<float> x(numbers(count)), out(zeros(count));
  for (long i = 0;; ++i) {
    ASSERT_TRUE(shift(x.view(), out.view(), 1, 4 * count));
    if (i == 1000) {
      std::puts("\nat work");
      std::fflush(stdout);
    }
  }
}

TEST_F(Deaths, AProcessKilledInsideALaunchLeavesNothingBehind) {
  expect_right_calls();
  for (int round = 0; round < 3; ++round) {
    int out[2];
    ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
    const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
    const auto child = fork();
    if (child == 0) {
      dup2(out[1], 1);
      execl(self.c_str(), self.c_str(), "--gtest_also_run_disabled_tests", "--gtest_filter=DeathChild.DISABLED_Launches", nullptr);
      _exit(127);
    }
    close(out[1]);
    std::string words;
    char bytes[512];
    while (words.find("at work") == std::string::npos) {
      const auto length = read(out[0], bytes, sizeof bytes);
      if (length <= 0) break;
      words.append(bytes, static_cast<std::size_t>(length));
    }
    usleep(20'000);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    close(out[0]);
    ASSERT_NE(words.find("at work"), std::string::npos) << words;
    EXPECT_TRUE(WIFSIGNALED(status));
    expect_right_calls();
  }
}

// More scratch than any device has: the call, the end of the capture or the replay says so; then all goes on.
TEST_F(Deaths, OutOfMemoryWhileAGraphIsCapturedIsToldAndOver) {
  auto& driver = Driver::instance();
  const OnGpu<float> x(numbers(count)), out(zeros(count));
  const OwnStream stream;
  std::string told;
  driver.begin_capture(stream.handle);
  const auto status = shift(x.view(), out.view(), 2, std::int64_t{1} << 42, {stream.handle});
  told = message_of(status);
  try {
    void* graph = driver.end_capture(stream.handle);
    if (status) {
      driver.launch_graph(graph, stream.handle);
      driver.wait(stream.handle);
    }
    driver.free_graph(graph);
  } catch (const std::runtime_error& error) {
    told += error.what();
  }
  EXPECT_NE(told.find("memory"), std::string::npos) << told;
  expect_right_calls();
}

}  // namespace
}  // namespace ejk::deaths_test
