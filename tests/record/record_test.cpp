// Recorded calls: scopes, the file of EJKERNEL_OPS_RECORD, files that are damaged or cannot be written.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

class Record : public StoreTest {
 protected:
  void record_to(const std::filesystem::path& path) { setenv("EJKERNEL_OPS_RECORD", path.c_str(), 1); }
  void SetUp() override { use_test_store(); }

  Status shift(std::int64_t count, std::map<std::string, Value> attributes = {}, std::size_t offset = 0) {
    return call("shift", {{"x", view(memory_ + offset, count)}, {"out", view(memory_ + 512, count)}}, attributes);
  }
  static TensorView view(float* data, std::int64_t count) { return TensorView(data, DType::f32, {count}); }
  std::vector<std::string> lines(const std::filesystem::path& path) const {
    std::ifstream stream(path);
    std::vector<std::string> result;
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  }
  std::filesystem::path trace() const { return folder / "trace.jsonl"; }

  alignas(64) float memory_[1024] = {};
};

TEST_F(Record, EachDistinctCallIsALineOnce) {
  record_to(trace());
  for (int i = 0; i < 3; ++i)
    for (const std::int64_t count : {6, 8}) ASSERT_EQ(message_of(shift(count, {{"by", 1.0 * i}})), "");
  std::thread([&] { EXPECT_TRUE(shift(6)); }).join();
  const auto found = lines(trace());
  ASSERT_EQ(found.size(), 2u) << "a varying attribute and another thread make no new line";
  EXPECT_EQ(recording_status().lines, 2u);
  EXPECT_EQ(recording_status().lost, 0u);
  EXPECT_EQ(recording_status().error, "");
  EXPECT_NE(info()->find("\"file\": \"" + trace().string() + "\",\n    \"lines\": 2,"), std::string::npos) << *info();
  const auto read = get_invocations(trace());
  ASSERT_TRUE(read) << message_of(read);
  ASSERT_EQ(read->invocations.size(), 2u);
  EXPECT_TRUE(read->skipped.empty());
  const auto& first = read->invocations[0];
  EXPECT_EQ(first.invocation.kernel, "shift");
  EXPECT_EQ(first.invocation.device, *device_fingerprint());
  EXPECT_EQ(first.invocation.tensors.at("x").shape[0], 6);
  EXPECT_EQ(first.invocation.tensors.at("x").data, nullptr);
  EXPECT_TRUE(first.invocation.attributes.empty());
  EXPECT_FALSE(first.archs.empty());
  EXPECT_TRUE(first.properties.contains("threads"));
  EXPECT_EQ(*to_json(first), found[0]);
}

// A plan is made anew when a config was put into the memory tier; the line is there already.
TEST_F(Record, APlanMadeAgainIsNoNewLine) {
  record_to(trace());
  ASSERT_TRUE(shift(6));
  const auto before = counters().plans;
  ConfigCache().put("something", Config{});
  ASSERT_TRUE(shift(6));
  EXPECT_GT(counters().plans, before);
  EXPECT_EQ(lines(trace()).size(), 1u);
}

// Options that say what is so anyway do not make another call of it; the line is what tuning records and labels are found by.
TEST_F(Record, ADefaultThatIsWrittenOutIsTheSameCall) {
  record_to(trace());
  ASSERT_TRUE(shift(6));
  ASSERT_TRUE(shift(6, {{"limit", std::int64_t{100}}}));
  EXPECT_EQ(lines(trace()).size(), 1u);
  ASSERT_TRUE(shift(6, {{"limit", std::int64_t{99}}}));
  EXPECT_EQ(lines(trace()).size(), 2u);
}

TEST_F(Record, AnAddressThatIsLessAlignedIsAnotherLine) {
  record_to(trace());
  ASSERT_TRUE(shift(6));
  ASSERT_TRUE(shift(6, {}, 1));
  const auto read = get_invocations(trace());
  ASSERT_EQ(read->invocations.size(), 2u);
  EXPECT_TRUE(read->invocations[0].alignment.empty());
  EXPECT_EQ(read->invocations[1].alignment, (std::map<std::string, std::int64_t>{{"x", 4}}));
  EXPECT_EQ(read->invocations[0].invocation.key(), read->invocations[1].invocation.key());
}

TEST_F(Record, ACallThatFailsIsNotRecorded) {
  record_to(trace());
  EXPECT_FALSE(shift(101)) << "above limit";
  ASSERT_TRUE(explain("shift", {{"x", view(memory_, 6)}, {"out", view(memory_ + 512, 6)}}, {}));
  EXPECT_FALSE(std::filesystem::exists(trace())) << "to explain a call is not to make it";
}

TEST_F(Record, ManyProcessesShareAFile) {
  record_to(trace());
  constexpr int processes = 8, calls = 20;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    children.push_back(fork());
    ASSERT_GE(children.back(), 0);
    if (children.back()) continue;
    bool fine = true;
    Invocation invocation;
    invocation.kernel = "made_by_" + std::to_string(i) + std::string(3000, 'x');  // long lines would show if writes mixed
    invocation.device = "cpu-generic-1t";
    for (int j = 0; j < calls; ++j) {
      invocation.attributes["j"] = std::int64_t{j};
      fine = record_invocation(invocation) && record_invocation(invocation) && fine;
    }
    _exit(fine ? 0 : 1);
  }
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto read = get_invocations(trace());
  ASSERT_TRUE(read) << message_of(read);
  EXPECT_EQ(read->skipped, std::vector<std::string>());
  EXPECT_EQ(read->invocations.size(), static_cast<std::size_t>(processes * calls));
}

TEST_F(Record, BadLinesAreNamedAndSkipped) {
  record_to(trace());
  ASSERT_TRUE(shift(6));
  const auto good = lines(trace()).front();
  std::ofstream(trace()) << good << "\n\n"
                         << good.substr(0, 40) << "\n[]\n"
                         << R"({"kernel":"k"})"
                         << "\n"
                         << good << "\n"
                         << good;
  const auto read = get_invocations(trace());
  ASSERT_TRUE(read) << message_of(read);
  ASSERT_EQ(read->invocations.size(), 1u);
  EXPECT_EQ(read->invocations[0].count, 3u) << "equal lines are one call";
  ASSERT_EQ(read->skipped.size(), 3u);
  EXPECT_TRUE(read->skipped[0].starts_with(trace().string() + ":3:")) << read->skipped[0];
  EXPECT_EQ(read->skipped[1], trace().string() + ":4: expected an object, found array");
  EXPECT_EQ(read->skipped[2], trace().string() + ":5: no 'device'");
  const auto none = get_invocations((folder / "none").string());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::io);
  EXPECT_NE(none.error().message.find("No such file"), std::string::npos);
}

TEST_F(Record, ALineThatWasCutOffDoesNotSpoilTheNext) {
  std::ofstream(trace()) << R"({"kernel":"sh)";
  record_to(trace());
  ASSERT_TRUE(shift(6));
  const auto read = get_invocations(trace());
  EXPECT_EQ(read->invocations.size(), 1u);
  EXPECT_EQ(read->skipped.size(), 1u);
}

TEST_F(Record, AFileThatCannotBeWrittenBreaksNoCall) {
  record_to(folder / "nowhere" / "trace.jsonl");
  setenv("EJKERNEL_LOG", "on", 1);
  testing::internal::CaptureStderr();
  ASSERT_EQ(message_of(shift(6)), "");
  ASSERT_EQ(message_of(shift(8)), "");
  const auto log = testing::internal::GetCapturedStderr();
  const auto status = recording_status();
  EXPECT_EQ(status.lines, 0u);
  EXPECT_NE(status.error.find("nowhere/trace.jsonl' cannot be opened: No such file or directory"), std::string::npos) << status.error;
  EXPECT_NE(log.find(status.error), std::string::npos) << log;
  EXPECT_EQ(log.find(status.error), log.rfind(status.error)) << "said once";
}

TEST_F(Record, AFullDiskBreaksNoCall) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  record_to("/dev/full");
  ASSERT_EQ(message_of(shift(6)), "");
  EXPECT_NE(recording_status().error.find("cannot be written: No space left"), std::string::npos) << recording_status().error;
}

// A program is not stopped by a trace that nobody reads: neither an opened pipe without a reader, nor one that is full.
TEST_F(Record, APipeThatNobodyReadsLosesLinesAndNoTime) {
  ASSERT_EQ(mkfifo(trace().c_str(), 0600), 0);
  record_to(trace());
  ASSERT_EQ(message_of(shift(6)), "");
  EXPECT_EQ(recording_status().lost, 1u);
  EXPECT_NE(recording_status().error.find("nobody reads the pipe"), std::string::npos) << recording_status().error;
  EXPECT_NE(info()->find("\"lost\": 1,"), std::string::npos) << *info();

  const int reader = open(trace().c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  Invocation invocation;
  invocation.kernel = "long" + std::string(900, 'x');
  invocation.device = "cpu-generic-1t";
  int refused = 0;
  for (int i = 0; i < 200; ++i) {  // more than a pipe holds
    invocation.attributes["i"] = std::int64_t{i};
    refused += !record_invocation(invocation);
  }
  const auto full = recording_status();
  EXPECT_EQ(full.lost, 1u + static_cast<unsigned>(refused));
  EXPECT_EQ(full.lines, static_cast<unsigned>(200 - refused));
  EXPECT_GT(refused, 100);
  EXPECT_NE(full.error.find("its reader is slower than the calls"), std::string::npos) << full.error;

  std::string text;
  char part[4096];
  for (ssize_t count; (count = read(reader, part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(count));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 200 - refused) << "whole lines alone";
  EXPECT_TRUE(record_invocation(invocation)) << "there is room again, and the line was not written before";
  EXPECT_EQ(recording_status().error, "");

  close(reader);
  invocation.attributes["i"] = std::int64_t{1000};
  EXPECT_FALSE(record_invocation(invocation)) << "and no SIGPIPE";
  EXPECT_NE(recording_status().error.find("has gone"), std::string::npos) << recording_status().error;
  const int again = open(trace().c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_TRUE(record_invocation(invocation)) << message_of(record_invocation(invocation));
  close(again);
}

TEST_F(Record, NothingIsWrittenUnlessAsked) {
  ASSERT_TRUE(shift(6));
  EXPECT_EQ(recording_status().file, "");
  EXPECT_EQ(recording_status().error, "");
}

TEST_F(Record, AScopeHearsHotCallsOfItsThread) {
  ASSERT_TRUE(shift(6));
  ASSERT_TRUE(shift(8));
  const auto plans = counters().plans;
  const recording outer;
  {
    const recording inner;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(shift(6));
    std::thread([&] { EXPECT_TRUE(shift(8)); }).join();
    const auto heard = get_invocations(inner);
    ASSERT_EQ(heard.invocations.size(), 1u) << "not the other thread's";
    EXPECT_EQ(heard.invocations[0].count, 3u);
    EXPECT_EQ(heard.invocations[0].invocation.tensors.at("x").shape[0], 6);
    EXPECT_EQ(counters().plans, plans);
  }
  ASSERT_TRUE(shift(8));
  EXPECT_EQ(get_invocations(outer).invocations.size(), 2u) << "the inner scope's too";
}

TEST_F(Record, AfterAScopeNothingIsHeard) {
  {
    const recording scope;
    ASSERT_TRUE(shift(6));
    EXPECT_EQ(get_invocations(scope).invocations.size(), 1u);
  }
  const recording scope;
  EXPECT_TRUE(get_invocations(scope).invocations.empty());
}

TEST_F(Record, CallsEjkDoesNotSeeAreRecordedByHand) {
  record_to(trace());
  Invocation invocation;
  invocation.kernel = "mine";
  invocation.device = *device_fingerprint();
  invocation.tensors = {{"x", view(memory_, 6)}};
  const recording scope;
  ASSERT_TRUE(record_invocation(invocation));
  ASSERT_TRUE(record_invocation(invocation));
  EXPECT_EQ(get_invocations(scope).invocations[0].count, 2u);
  ASSERT_EQ(lines(trace()).size(), 1u);
  EXPECT_EQ(get_invocations(trace())->invocations[0].invocation.key(), invocation.key());
  invocation.attributes["scale"] = 1.0 / 0.0 * 0;
  EXPECT_FALSE(record_invocation(invocation));
}

TEST(RecordedJson, FaultsAreNamed) {
  const auto fault = [](const std::string& more) {
    const auto read = recorded_from_json(R"({"kernel":"k","device":"cpu","tensors":{"x":["f32",[1]]},"attributes":{})" + more + "}");
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(fault(""), "");
  EXPECT_EQ(fault(R"(,"alignment":{"x":16},"archs":["cpu:avx2"],"properties":{"threads":2},"count":7)"), "");
  EXPECT_EQ(fault(R"(,"alignment":{"x":3})"), "recorded call: the alignment of 'x' must be 1, 2, 4, ... 32; found 3");
  EXPECT_EQ(fault(R"(,"alignment":{"y":4})"), "recorded call: 'alignment' names no tensor of the call: 'y'");
  EXPECT_EQ(fault(R"(,"archs":"cpu")"), "recorded call: 'archs' must be a list of names; found \"cpu\"");
  EXPECT_EQ(fault(R"(,"count":0)"), "recorded call: 'count' must be an integer of 1 or more; found 0");
  EXPECT_EQ(fault(R"(,"data":[1])"),
            "recorded call: no field 'data'; expected kernel, device, tensors, attributes, alignment, archs, properties, count");
}

}  // namespace
}  // namespace ejk
