// Processes of one job that agree on tuned configs through a folder.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "execute/recorder_kernel.hpp"
#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

// Each process would choose another config: its own number.
class Agreements : public StoreTest {
 protected:
  std::string agreed() const { return (folder / "agreed").string(); }
  ConfigSelectorChain chain(int seconds = 60) const {
    return {std::make_shared<ConfigCache>(),
            std::make_shared<PersistentCache>(std::vector<std::string>{},
                                              RecordsWriting{(folder / "own").string(), agreed(), std::chrono::seconds(seconds)}),
            tuning};
  }

  // What each of `count` processes chose: 10 * tier + tile.
  template <class Prepare>
  std::vector<int> in_processes(int count, const Prepare& prepare) const {
    std::vector<pid_t> children;
    for (int rank = 0; rank < count; ++rank) {
      const auto child = fork();
      if (child == 0) {
        const auto fake = std::make_shared<FakeTuner>();
        set_tuner(fake);
        prepare(rank, *fake);
        const auto selection = chain().select(Recorder(), invocation());
        if (!selection) _exit(255);
        _exit(static_cast<int>(10 * static_cast<int>(selection->tier) + std::get<std::int64_t>(selection->config.values.at("tile"))));
      }
      children.push_back(child);
    }
    std::vector<int> result;
    for (const auto child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      result.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return result;
  }
};

TEST_F(Agreements, OneProcessMeasuresAndAllTakeItsConfig) {
  const auto chosen = in_processes(6, [](int rank, FakeTuner& tuner) {
    tuner.pause = std::chrono::milliseconds(100);
    tuner.config = Recorder::with(1 + rank % 3);
  });
  for (const auto each : chosen) EXPECT_EQ(each % 10, chosen[0] % 10);
  const auto rows = read_records(agreed() + "/cpu-test/recorder.jsonl");
  ASSERT_EQ(message_of(rows), "");
  EXPECT_EQ(rows->rows.size(), 1u);
  EXPECT_EQ(read_records((folder / "own/cpu-test/recorder.jsonl").string())->rows.size(), 1u) << "the measurement is also the user's";
}

TEST_F(Agreements, WhoseMeasurementFailsFallBackAlike) {
  const auto chosen = in_processes(4, [](int, FakeTuner& tuner) {
    tuner.pause = std::chrono::milliseconds(50);
    static const auto start = getpid();
    tuner.fails = "rank " + std::to_string(start) + " failed";
  });
  for (const auto each : chosen) EXPECT_EQ(each, 10 * static_cast<int>(Tier::heuristic) + 1);
  const TunerScope scope(std::make_shared<FakeTuner>());  // would succeed, but the others did without
  const auto late = chain().select(Recorder(), invocation());
  ASSERT_EQ(message_of(late), "");
  EXPECT_EQ(late->tier, Tier::heuristic);
  EXPECT_NE(late->trail[4].detail.find("another process failed to tune it: rank "), std::string::npos) << late->trail[4].detail;
}

TEST_F(Agreements, AKilledMeasurerIsTakenOver) {
  const auto child = fork();
  if (child == 0) {
    const auto fake = std::make_shared<FakeTuner>();
    fake->pause = std::chrono::seconds(60);
    set_tuner(fake);
    (void)chain().select(Recorder(), invocation());
    _exit(0);
  }
  usleep(200'000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const TunerScope scope(std::make_shared<FakeTuner>());
  EXPECT_EQ(chain().select(Recorder(), invocation())->tier, Tier::autotune);
}

TEST_F(Agreements, WaitingEnds) {
  std::filesystem::path lock;
  const auto fake = std::make_shared<FakeTuner>();
  const TunerScope scope(fake);
  ASSERT_EQ(chain().select(Recorder(), invocation(1))->tier, Tier::autotune);  // makes the folder, and shows how locks are called
  for (const auto& entry : std::filesystem::directory_iterator(agreed() + "/cpu-test"))
    if (entry.path().extension() == ".lock") lock = entry.path();
  std::filesystem::remove(agreed() + "/cpu-test/recorder.jsonl");
  const int fd = open(lock.c_str(), O_RDWR);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const auto selection = chain(1).select(Recorder(), invocation(1));
  close(fd);
  ASSERT_EQ(message_of(selection), "");
  EXPECT_EQ(selection->tier, Tier::heuristic);
  EXPECT_NE(selection->trail[4].detail.find("another process has been measuring this call for more than 1 s"), std::string::npos)
      << selection->trail[4].detail;
}

TEST_F(Agreements, AreOnNothingNear) {
  // Which rows the folder has yet differs from process to process: only a call's own row counts there.
  setenv("EJKERNEL_AGREEMENT", agreed().c_str(), 1);
  use_test_store();
  const auto kernel = *spec_kernel("shift");
  const Tensor x(DType::f32, {16}), out(DType::f32, {16}), x2(DType::f32, {32}), out2(DType::f32, {32});
  Invocation first, second;
  first.kernel = second.kernel = "shift";
  first.tensors = {{"x", x}, {"out", out}};
  second.tensors = {{"x", x2}, {"out", out2}};
  const auto fake = std::make_shared<FakeTuner>();
  const TunerScope tuner(fake);
  const policy_override scope(tuning);
  ASSERT_EQ(message_of(Executor().choose(*kernel, first)), "");
  const auto other = Executor().choose(*kernel, second);
  ASSERT_EQ(message_of(other), "");
  EXPECT_EQ(other->tier, Tier::autotune);
}

}  // namespace
}  // namespace ejk
