// ejk warm: after it, the calls of a trace or of a program's labels compile nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "command_line/command.hpp"
#include "ejk/label.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

class Warm : public StoreTest {
 protected:
  void SetUp() override {
    // A copy, because the vocabulary there is a link, which a store that is filled from it would not have.
    std::filesystem::copy(test::source_dir() + "/tests/execute/data", folder / "source", std::filesystem::copy_options::recursive);
    setenv("EJKERNEL_STORE", (folder / "source").c_str(), 1);
    in_child([&] { return make_calls(); }, "recording", trace());
  }

  // Work of another process, with a cache of its own.
  template <class Work>
  void in_child(Work work, const std::string& cache, const std::string& record = "") {
    const auto child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv("EJKERNEL_CACHE_DIR", (folder / cache).c_str(), 1);
      if (!record.empty()) setenv("EJKERNEL_OPS_RECORD", record.c_str(), 1);
      _exit(work() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }

  // Three images: blocks of 2 and of 8 in f32, blocks of 8 in f64; and one that is forced.
  static bool make_calls() {
    alignas(64) static double memory[512];
    bool fine = true;
    for (const std::int64_t count : {6, 8, 10, 12})
      for (const auto type : {DType::f32, DType::f64})
        if (count != 6 || type == DType::f32)
          fine = call("shift", {{"x", TensorView(memory, type, {count})}, {"out", TensorView(memory + 256, type, {count})}}, {}) && fine;
    return fine;
  }

  // The summary of a run with --json.
  static nlohmann::json warm(std::vector<std::string> words, int code = 0) {
    words.push_back("--json");
    testing::internal::CaptureStdout();
    EXPECT_EQ(tools::warm(words), code);
    return nlohmann::json::parse(testing::internal::GetCapturedStdout());
  }

  std::string trace() const { return (folder / "trace.jsonl").string(); }
};

TEST_F(Warm, TheCallsOfATraceCompileNothingAfterwards) {
  const auto first = warm({"--trace", trace()});
  EXPECT_EQ(first["calls"], 7);
  EXPECT_EQ(first["built"], 3) << "each image once";
  EXPECT_EQ(first["skipped"].size(), 0u) << first;
  EXPECT_EQ(warm({"--trace", trace()})["present"], 3) << "what is there stays";
  ASSERT_TRUE(make_calls());
  EXPECT_EQ(counters().compiles, 0u);
  EXPECT_EQ(counters().fallbacks, 0u);
}

TEST_F(Warm, WithoutItTheyCompile) {
  ASSERT_TRUE(make_calls());
  EXPECT_EQ(counters().compiles, 3u) << "so that the other tests can fail";
}

TEST_F(Warm, AStoreThatItFilledIsWhole) {
  const auto store = (folder / "store").string();
  in_child([&] { return warm({"--trace", trace(), "--store", store})["built"] == 3; }, "empty");
  setenv("EJKERNEL_STORE", store.c_str(), 1);
  setenv("EJKERNEL_JIT", "off", 1);
  ASSERT_TRUE(make_calls());
  EXPECT_EQ(counters().fallbacks, 0u);
}

TEST_F(Warm, ThePacksImagesAreNotBuiltAgain) {
  const auto store = (folder / "store").string();
  in_child([&] { return warm({"--trace", trace(), "--store", store})["built"] == 3; }, "empty");
  setenv("EJKERNEL_STORE", store.c_str(), 1);
  const auto summary = warm({"--trace", trace()});
  EXPECT_EQ(summary["built"], 0) << summary;
  EXPECT_EQ(summary["present"], 3) << summary;
}

TEST_F(Warm, LabelsOfAProgramAreBuilt) {
  const auto calls = get_invocations(trace());
  ASSERT_TRUE(calls) << message_of(calls);
  const auto hlo = (folder / "step.hlo.txt").string();
  std::ofstream(hlo) << "metadata={op_name=\"jit(f)/" << *label(calls->invocations[0].invocation) << "\"}\n"
                     << *label(calls->invocations[1].invocation, Stamp::json) << "\n"
                     << "ejk:shift:00112233445566ff ejk:shift:0011\n";
  const auto without = warm({"--hlo", hlo});
  EXPECT_EQ(without["built"], 1);
  EXPECT_EQ(without["skipped"].size(), 2u) << without;
  const auto with = warm({"--hlo", hlo, "--trace", trace()});
  EXPECT_EQ(with["built"], 1);
  EXPECT_EQ(with["present"], 1);
  ASSERT_EQ(with["skipped"].size(), 1u) << with;
  EXPECT_EQ(with["skipped"][0]["call"], "ejk:shift:00112233445566ff");
  EXPECT_EQ(with["skipped"][0]["why"], "no recorded call and no tuning record has this hash");
  ASSERT_EQ(with["not_read"].size(), 1u);
  EXPECT_NE(with["not_read"][0].get<std::string>().find("cut off or garbled at byte"), std::string::npos) << with;
}

TEST_F(Warm, OtherDevicesAreBuiltByTheirRecordedArchsOrSkippedWithTheReason) {
  auto calls = get_invocations(trace());
  ASSERT_TRUE(calls) << message_of(calls);
  auto call = calls->invocations[0];
  std::ofstream file(trace());
  call.invocation.device = "cpu-generic-99t";  // of the same archs
  file << *to_json(call) << "\n";
  call.archs = {"cpu:of_the_future"};
  call.invocation.device = "cpu-of_the_future-8t";
  file << *to_json(call) << "\n";
  call.invocation.device = "tpu-v9";
  file << *to_json(call) << "\nnonsense\n";
  call.invocation.kernel = "unknown";
  file << *to_json(call) << "\n";
  file.close();
  const auto summary = warm({"--trace", trace()});
  EXPECT_EQ(summary["built"], 1) << summary;
  ASSERT_EQ(summary["skipped"].size(), 3u) << summary;
  EXPECT_EQ(
      summary["skipped"][0]["why"],
      "device 'cpu-of_the_future-8t' is not here, and [cpu:of_the_future] tells no arch of these specs; record the call again, or name a "
      "device that is here");
  EXPECT_EQ(summary["skipped"][1]["why"], "device 'tpu-v9' is not here, and this build of ejk has no tpu backend");
  EXPECT_EQ(summary["skipped"][2]["why"], "no kernel 'unknown'; the stores have shift");
  EXPECT_EQ(summary["not_read"].size(), 1u);
  EXPECT_EQ(warm({"--trace", trace(), "--device", "cpu"})["calls"], 3) << "taken as calls of this machine";
}

// A record of another config is what the chain finds, so its image is the one that is built.
TEST_F(Warm, RecordsDecideWhatIsBuilt) {
  const auto calls = get_invocations(trace());
  const auto& invocation = calls->invocations[1].invocation;  // f32, 8
  TuningRecord record;
  record.key = invocation.key();
  record.config = {"wide", "cpu:generic", {{"block", std::int64_t{4}}}};
  record.source = *(*spec_kernel("shift"))->source_hash(invocation, record.config);
  record.samples_us = {1, 1, 1};
  record.median_us = 1;
  record.checked_against = "float64 reference";
  record.measured = 1;
  const auto appended = append_record((folder / "cache" / "tuned").string(), record);
  ASSERT_TRUE(appended) << message_of(appended);
  EXPECT_EQ(warm({"--trace", trace()})["built"], 2) << "blocks of 4 for f32, which near calls take too, and of 8 for f64";
  ASSERT_TRUE(make_calls());
  EXPECT_EQ(counters().compiles, 0u);
}

}  // namespace
}  // namespace ejk
