// Processes of one job that agree on tuned configs through a folder.
#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "execute/recorder_kernel.hpp"
#include "execute/store_fixture.hpp"
#include "select/agreement.hpp"
#include "select/locked_file.hpp"

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

// What one process chooses with the agreement's folder as it is, and why it was not tuned by agreement.
class HostileAgreements : public Agreements {
 protected:
  HostileAgreements() {
    std::filesystem::create_directories(inner());
    std::filesystem::permissions(agreed(), std::filesystem::perms(0755));
    write(private_file(), words);
  }
  std::filesystem::path inner() const { return std::filesystem::path(agreed()) / "cpu-test"; }
  std::filesystem::path private_file() const { return folder / "private"; }
  static void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string detail() {
    const TunerScope scope(std::make_shared<FakeTuner>());
    const auto selection = chain(1).select(Recorder(), invocation());
    return selection ? selection->trail[4].detail : selection.error().message;
  }
  // The names of what an agreement makes for this call.
  std::vector<std::string> names() {
    (void)detail();
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(inner())) result.push_back(entry.path().filename());
    std::filesystem::remove_all(inner());
    std::filesystem::create_directory(inner());
    return result;
  }
  static constexpr char words[] = "private\nwithout a last line end";
};

TEST_F(HostileAgreements, ThatOthersCanWriteAreRefused) {
  std::filesystem::permissions(agreed(), std::filesystem::perms::all);
  EXPECT_NE(detail().find("the agreement folder " + agreed() + " is writable by others (mode 777): run chmod o-w on it"), std::string::npos)
      << detail();
  EXPECT_TRUE(std::filesystem::is_empty(inner()));
  std::filesystem::permissions(agreed(), std::filesystem::perms(01777));
  EXPECT_NE(detail().find("is writable by others (mode 1777)"), std::string::npos) << detail();
}

TEST_F(HostileAgreements, OfAGroupOfOursAreSharedWithIt) {
  std::filesystem::remove_all(inner());
  std::filesystem::permissions(agreed(), std::filesystem::perms(02770));
  EXPECT_EQ(detail().find("agreement folder"), std::string::npos) << detail();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(agreed()))
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms(0060), std::filesystem::perms(0060)) << entry.path();
}

TEST_F(HostileAgreements, LinksInThemLeadNowhere) {
  for (const auto& name : names())
    for (const char* target : {"private", "made-elsewhere"}) {
      SCOPED_TRACE(name + " is a link to " + target);
      std::filesystem::create_symlink(folder / target, inner() / name);
      (void)detail();
      EXPECT_EQ(read(private_file()), words);
      EXPECT_FALSE(std::filesystem::exists(folder / "made-elsewhere"));
      std::filesystem::remove_all(inner());
      std::filesystem::create_directory(inner());
    }
}

TEST_F(HostileAgreements, AFailureNoteThatIsALinkIsNotRead) {
  const auto fake = std::make_shared<FakeTuner>();
  fake->fails = "no";
  {
    const TunerScope scope(fake);
    (void)chain(1).select(Recorder(), invocation());
  }
  std::filesystem::path note;
  for (const auto& entry : std::filesystem::directory_iterator(inner()))
    if (entry.path().extension() == ".failed") note = entry.path();
  ASSERT_EQ(read(note), "no");
  std::filesystem::remove(note);
  std::filesystem::create_symlink(private_file(), note);
  EXPECT_EQ(detail().find("private"), std::string::npos) << detail();
}

TEST_F(HostileAgreements, FilesWithASecondNameAreNotWritten) {
  std::filesystem::create_hard_link(private_file(), inner() / "recorder.jsonl");
  (void)detail();
  EXPECT_EQ(read(private_file()), words);
}

TEST_F(HostileAgreements, FilesThatAreNoRecordsAreLeftAsTheyAre) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "a line of somebody's notes\n";
  for (const std::string& text : {std::string(words), many, many + "{", std::string("{}\n{\"a\": 1}\n{\"b")}) {
    write(inner() / "recorder.jsonl", text);
    (void)detail();
    EXPECT_EQ(read(inner() / "recorder.jsonl"), text);
    const auto status = append_record(agreed(), measured(invocation().key(), Recorder::with(1)));
    EXPECT_NE(message_of(status).find("holds no records, and is left as it is"), std::string::npos) << message_of(status);
    EXPECT_EQ(read(inner() / "recorder.jsonl"), text);
  }
}

TEST_F(HostileAgreements, FilesThatAreNoRecordsAreNotReplacedEither) {
  const auto record = measured(invocation().key(), Recorder::with(1));
  const auto path = inner() / "recorder.jsonl";
  write(path, words);
  const auto imported = import_records(agreed(), {record});
  EXPECT_NE(message_of(imported).find("holds no records, and is left as it is"), std::string::npos) << message_of(imported);
  EXPECT_NE(message_of(write_records(path, {})), "");
  EXPECT_EQ(read(path), words);
  std::filesystem::remove(path);
  EXPECT_EQ(message_of(import_records(agreed(), {record})), "");
  EXPECT_EQ(message_of(write_records(path, {})), "");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(HostileAgreements, WhatIsMadeInThemIsOfTheirUsersAlone) {
  const auto mode = [](const std::filesystem::path& path) { return static_cast<unsigned>(std::filesystem::status(path).permissions()); };
  for (const unsigned top : {0755u, 02770u, 02775u}) {
    std::filesystem::remove_all(agreed());
    std::filesystem::create_directory(agreed());
    std::filesystem::permissions(agreed(), std::filesystem::perms(top));
    (void)detail();
    const bool shared = top != 0755;
    EXPECT_EQ(mode(inner()), shared ? 02770u : 0700u) << top;
    for (const auto& entry : std::filesystem::directory_iterator(inner()))
      if (entry.path().extension() == ".lock") {
        EXPECT_EQ(mode(entry.path()), shared ? 0660u : 0600u) << top;
      }
  }
  std::filesystem::remove_all(agreed());
  (void)detail();
  EXPECT_EQ(mode(agreed()), 0700u) << "made here, for this user";
}

TEST_F(HostileAgreements, OfAGroupWithoutItsBitOnFoldersAreStillTheGroups) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can choose its groups";
  constexpr gid_t group = 54321;
  const auto child = fork();
  if (child == 0) {
    if (setgroups(1, &group) != 0 || chown(agreed().c_str(), 0, group) != 0 || chmod(agreed().c_str(), 0770) != 0) _exit(2);
    std::filesystem::remove_all(inner());
    (void)detail();
    struct stat facts {};
    _exit(stat(inner().c_str(), &facts) == 0 && facts.st_gid == group && (facts.st_mode & 07777) == 02770 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Anybody who can read a file can lock it, and need not let go.
TEST_F(HostileAgreements, ALockThatIsKeptForEverIsAnError) {
  (void)detail();
  const auto path = inner() / "recorder.jsonl";
  const auto before = read(path);
  const int fd = open(path.c_str(), O_RDONLY);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  try {
    const LockedFile file(path, std::chrono::milliseconds(200));
    ADD_FAILURE() << "locked twice";
  } catch (const std::exception& error) {
    EXPECT_EQ(error.what(), path.string() + " has been locked by another process for more than 0.2 s");
  }
  close(fd);
  EXPECT_EQ(read(path), before);
  EXPECT_EQ(message_of(append_record(agreed(), measured(invocation().key(), Recorder::with(1)))), "");
}

TEST_F(HostileAgreements, DamagedRecordsAreNeverAWrongConfig) {
  std::mt19937 random(7);
  (void)detail();
  const auto whole = read(inner() / "recorder.jsonl");
  ASSERT_FALSE(whole.empty());
  for (int round = 0; round < 60; ++round) {
    auto text = whole + whole + whole;
    for (int i = 0; i < 1 + round % 5; ++i) text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    if (round % 3 == 0) text.resize(random() % text.size());
    write(inner() / "recorder.jsonl", text);
    const TunerScope scope(std::make_shared<FakeTuner>());
    const auto selection = chain(1).select(Recorder(), invocation());
    ASSERT_EQ(message_of(selection), "");
    EXPECT_EQ(Recorder().invalid_reason(invocation(), selection->config), "") << round;
  }
}

}  // namespace
}  // namespace ejk
