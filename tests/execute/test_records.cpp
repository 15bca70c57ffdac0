// Tuning records: reading, appending by many processes, torn lines, merging.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "execute/recorder_kernel.hpp"
#include "execute/store_fixture.hpp"
#include "tests/growth.hpp"

namespace ejk {
namespace {

ssize_t write_byte(int fd) { return write(fd, "", 1); }

class Records : public StoreTest {
 protected:
  std::string tuned() const { return (folder / "tuned").string(); }
  std::filesystem::path file() const { return folder / "tuned" / "cpu-test" / "recorder.jsonl"; }
  void write(const std::string& text) const {
    std::filesystem::create_directories(file().parent_path());
    std::ofstream(file()) << text;
  }
  std::string text() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  ConfigSelectorChain chain() const {
    return {std::make_shared<ConfigCache>(), std::make_shared<PersistentCache>(std::vector<std::string>{tuned()})};
  }
  std::vector<std::int64_t> tiles() const {
    std::vector<std::int64_t> result;
    const auto content = read_records(file());
    for (const auto& row : content->rows) result.push_back(std::get<std::int64_t>(row.record.config.values.at("tile")));
    return result;
  }
};

TEST_F(Records, AreReadSkippingBadLinesAndKeptInMemory) {
  const auto key = invocation().key();
  write("not json\n{\"key\": " + key + ", \"config\": {\"tile\": 3}}\n{\"key\": 5}\n");
  auto tiers = chain();
  const auto first = tiers.select(Recorder(), invocation());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->tier, Tier::persistent);
  EXPECT_EQ(first->config, Recorder::with(3));
  EXPECT_NE(first->detail.find("recorder.jsonl:2; lines skipped: 1 (not a JSON object), 3 (no key)"), std::string::npos) << first->detail;
  const auto again = tiers.select(Recorder(), invocation());
  EXPECT_EQ(again->tier, Tier::memory);
  EXPECT_NE(again->detail.find("remembered in this process, from " + file().string() + ":2"), std::string::npos) << again->detail;
}

TEST_F(Records, OverridesAndHeuristicsAreNeverRemembered) {
  auto tiers = chain();
  const auto cfg = Recorder::with(2);
  ASSERT_TRUE(tiers.select(Recorder(), invocation(), &cfg));
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  EXPECT_EQ(tiers.memory().size(), 0u);
}

TEST_F(Records, RoundTripWithAllTheirEvidence) {
  auto record = measured(invocation(4).key(), Recorder::with(2), 7.25);
  record.source = "0123456789abcdef";
  record.samples_us = {7, 7.25, 8.5};
  record.alternatives = {{Recorder::with(3), 9.5}, {Recorder::with(1), 14.5}};
  record.residual = 0.125;
  record.rejected = 2;
  const auto line = to_json(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto back = record_from_json(line);
  ASSERT_EQ(message_of(back), "");
  EXPECT_EQ(to_json(*back), line);
  EXPECT_EQ(back->key, record.key);
  EXPECT_EQ(back->alternatives, record.alternatives);
  EXPECT_EQ(back->samples_us, record.samples_us);
  EXPECT_EQ(back->baseline, record.baseline);
  EXPECT_EQ(message_of(record_from_json(R"({"key":{},"config":{"tile":[]}})")),
            "config: config: 'tile' must be a number, a boolean or a string; found array");
  EXPECT_EQ(message_of(record_from_json(R"({"key":{},"config":{},"median_us":"fast"})")), "median_us must be a number; found string");
}

TEST_F(Records, TheLaterOfTwoRowsCounts) {
  for (const std::int64_t tile : {2, 3})
    ASSERT_EQ(message_of(append_record(tuned(), measured(invocation().key(), Recorder::with(tile)))), "");
  const auto selection = chain().select(Recorder(), invocation());
  EXPECT_EQ(selection->config, Recorder::with(3));
  EXPECT_NE(selection->detail.find("recorder.jsonl:2"), std::string::npos);
}

TEST_F(Records, AreReadAgainWhenAnotherProcessAppends) {
  const auto tiers = chain();
  EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::heuristic);
  ASSERT_EQ(message_of(append_record(tuned(), measured(invocation().key(), Recorder::with(2)))), "");
  EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::persistent);
}

TEST_F(Records, ThatCannotServeArePassedOverWithTheReason) {
  ASSERT_EQ(message_of(append_record(tuned(), measured(invocation().key(), Recorder::with(9)))), "");
  const auto selection = chain().select(Recorder(), invocation());
  EXPECT_EQ(selection->tier, Tier::heuristic);
  EXPECT_NE(selection->trail[3].detail.find("row 1 of " + file().string() +
                                            R"(: {"tile":9} cannot serve this call: it is not in the config space)"),
            std::string::npos)
      << selection->trail[3].detail;
}

TEST_F(Records, OnlyWhatWasMeasuredIsWritten) {
  auto record = measured(invocation().key(), Recorder::with(2));
  record.samples_us.clear();
  EXPECT_EQ(message_of(append_record(tuned(), record)),
            invocation().key() + ": a record needs the samples and the median of its measurement");
  record = measured("{}", Recorder::with(2));
  EXPECT_EQ(message_of(append_record(tuned(), record)), "the key of a record must name a device and a kernel; found {}");
  record = measured(R"({"device":"../..","kernel":"x"})", Recorder::with(2));
  EXPECT_NE(message_of(append_record(tuned(), record)), "") << "a key is no way out of the folder";
  record = measured(invocation().key(), Recorder::with(2));
  record.residual = 1.5;
  EXPECT_NE(message_of(append_record(tuned(), record)), "") << "a wrong result is no winner";
  EXPECT_FALSE(std::filesystem::exists(folder / "tuned" / "cpu-test"));
}

TEST_F(Records, ATornLastLineIsSkippedAndHealedByTheNextAppend) {
  const auto whole = to_json(measured(invocation(1).key(), Recorder::with(1))) + "\n";
  const auto second = to_json(measured(invocation(2).key(), Recorder::with(2)));
  for (std::size_t cut = 1; cut < second.size(); cut += 13) {
    write(whole + second.substr(0, cut));
    if (cut % 2 == 0) {
      EXPECT_EQ(tiles(), std::vector<std::int64_t>{1}) << cut;
    }
    ASSERT_EQ(message_of(append_record(tuned(), measured(invocation(3).key(), Recorder::with(3)))), "");
    ASSERT_EQ(tiles(), (std::vector<std::int64_t>{1, 3})) << cut;
    ASSERT_TRUE(read_records(file())->skipped.empty()) << cut;
  }
  write(whole + second);  // only the line end is missing: nothing is lost
  ASSERT_EQ(message_of(append_record(tuned(), measured(invocation(3).key(), Recorder::with(3)))), "");
  EXPECT_EQ(tiles(), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(Records, OfManyProcessesAreAllThere) {
  constexpr int processes = 8, rows = 40;  // each row waits for the disk, and all of them for one lock
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const auto child = fork();
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < rows; ++i) good = good && append_record(tuned(), measured(invocation(1 + p * rows + i).key(), Recorder::with(1)));
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto content = read_records(file());
  ASSERT_EQ(message_of(content), "");
  EXPECT_TRUE(content->skipped.empty());
  std::set<std::string> keys;
  for (const auto& row : content->rows) keys.insert(row.record.key);
  EXPECT_EQ(keys.size(), static_cast<std::size_t>(processes * rows));
}

TEST_F(Records, SurviveKilledWriters) {
  std::size_t told = 0;
  for (int round = 0; round < 30 || (told <= 30 && round < 600); ++round) {  // on a busy machine a round may see no append
    int progress[2];
    ASSERT_EQ(pipe(progress), 0);
    const auto child = fork();
    if (child == 0) {
      for (int i = 0;; ++i) {  // few keys, so that it also compacts
        if (!append_record(tuned(), measured(invocation(1 + (round * 7 + i) % 10).key(), Recorder::with(1 + i % 3)))) _exit(1);
        if (write_byte(progress[1]) != 1) _exit(1);
      }
    }
    close(progress[1]);
    usleep(static_cast<useconds_t>((2000 + round % 30 * 700) * (1 + round / 30)));  // longer where none was done in time
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (char byte; read(progress[0], &byte, 1) == 1;) ++told;
    close(progress[0]);
  }
  ASSERT_EQ(message_of(append_record(tuned(), measured(invocation(1).key(), Recorder::with(1)))), "");
  const auto content = read_records(file());
  ASSERT_EQ(message_of(content), "");
  EXPECT_TRUE(content->skipped.empty()) << content->skipped.front();
  std::set<std::string> keys;
  for (const auto& row : content->rows) keys.insert(row.record.key);
  EXPECT_EQ(keys.size(), std::min<std::size_t>(10, told + 1)) << told << " appends were done";
  EXPECT_GT(told, 30u);
}

TEST_F(Records, AreCompactedTheLaterRowsStay) {
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(message_of(append_record(tuned(), measured(invocation(1 + i % 5).key(), Recorder::with(1 + i % 3)))), "");
  const auto content = read_records(file());
  EXPECT_LT(content->rows.size(), 25u);
  std::map<std::string, Config> last;
  for (const auto& row : content->rows) last[row.record.key] = row.record.config;
  for (int i = 95; i < 100; ++i) EXPECT_EQ(last.at(invocation(1 + i % 5).key()), Recorder::with(1 + i % 3)) << i;
}

TEST_F(Records, AreChangedInPlaceAndElseStayAsTheyAre) {
  auto one = measured(invocation(1).key(), Recorder::with(1)), two = measured(invocation(2).key(), Recorder::with(2));
  EXPECT_EQ(to_json(one).find("\"code\""), std::string::npos) << "as before there was one";
  two.code = "fedcba9876543210";
  write(to_json(one) + "\n" + to_json(two) + "\n");
  const auto before = text();
  const auto none = update_records(file(), [](TuningRecord&) { return false; });
  ASSERT_EQ(message_of(none), "");
  EXPECT_EQ(*none, 0U);
  EXPECT_EQ(text(), before);
  const auto changed = update_records(file(), [&](TuningRecord& record) {
    record.source = record.key == two.key ? "0123456789abcdef" : record.source;
    return record.key == two.key;
  });
  ASSERT_EQ(message_of(changed), "");
  EXPECT_EQ(*changed, 1U);
  two.source = "0123456789abcdef";
  EXPECT_EQ(text(), to_json(one) + "\n" + to_json(two) + "\n");
  EXPECT_NE(message_of(update_records((folder / "nothing.jsonl").string(), [](TuningRecord&) { return true; })).find("no such file"),
            std::string::npos);
}

TEST_F(Records, AFolderThatCannotBeWrittenIsAnError) {
  write("");
  std::filesystem::remove_all(folder / "tuned");
  std::ofstream(folder / "tuned") << "a file";
  const auto status = append_record(tuned(), measured(invocation().key(), Recorder::with(1)));
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_NE(message_of(status).find("cannot make the folder of " + file().string()), std::string::npos) << message_of(status);
}

// Whoever can write to the folder of records chooses configs: under no mask it is its owner's alone.
TEST_F(Records, FoldersAreNotWritableByOthersWhateverTheMask) {
  const auto mask = umask(0);
  const auto status = append_record(tuned(), measured(invocation().key(), Recorder::with(1)));
  umask(mask);
  ASSERT_EQ(message_of(status), "");
  const auto others = std::filesystem::perms::group_write | std::filesystem::perms::others_write;
  for (const auto& path : {folder / "tuned", file().parent_path(), file()})
    EXPECT_EQ(std::filesystem::status(path).permissions() & others, std::filesystem::perms::none) << path;
}

// Configs may have any number of parameters; twice as many take twice as long.
TEST_F(Records, OfManyParametersAreReadInOneGo) {
  EXPECT_TRUE(test::grows_in_proportion(5'000, [&](int parameters) {
    Config config;
    for (int i = 0; i < parameters; ++i) config.values["p" + std::to_string(i)] = std::int64_t{i};
    const auto record = record_from_json(to_json(measured(invocation().key(), config)));
    ASSERT_TRUE(record) << message_of(record);
    EXPECT_EQ(record->config.values.size(), static_cast<std::size_t>(parameters));
  }));
}

TEST_F(Records, MergingKeepsTheBetterMeasuredOfEachKeyAndSource) {
  const auto key = invocation().key();
  auto unchecked = measured(key, Recorder::with(1), 1), noisy = measured(key, Recorder::with(2)), quiet = measured(key, Recorder::with(3));
  unchecked.checked_against.clear();
  noisy.noise = 0.5;
  auto longer = quiet;
  longer.samples_us.push_back(5);
  EXPECT_TRUE(better_measured(noisy, unchecked));
  EXPECT_TRUE(better_measured(quiet, noisy));
  EXPECT_TRUE(better_measured(longer, quiet));
  EXPECT_FALSE(better_measured(quiet, quiet));
  auto other_source = noisy;
  other_source.source = "fedcba9876543210";
  const auto merged = merge_records({unchecked, quiet, noisy, other_source, measured(invocation(2).key(), Recorder::with(1))});
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(merged[0].config, Recorder::with(3));
  EXPECT_EQ(merged[1].source, other_source.source);
}

TEST_F(Records, ImportAddsReplacesAndKeeps) {
  auto noisy = measured(invocation(1).key(), Recorder::with(1)), quiet = measured(invocation(2).key(), Recorder::with(2));
  noisy.noise = 0.5;
  for (const auto& record : {noisy, quiet}) ASSERT_EQ(message_of(append_record(tuned(), record)), "");
  auto better = noisy, worse = quiet;
  better.noise = 0.01, better.config = Recorder::with(3);
  worse.noise = 0.4, worse.config = Recorder::with(1);
  const auto report = import_records(tuned(), {better, worse, measured(invocation(3).key(), Recorder::with(1))});
  ASSERT_EQ(message_of(report), "");
  EXPECT_EQ(report->added, 1u);
  EXPECT_EQ(report->replaced, 1u);
  EXPECT_EQ(report->kept, 1u);
  EXPECT_EQ(tiles(), (std::vector<std::int64_t>{3, 2, 1}));
}

}  // namespace
}  // namespace ejk
