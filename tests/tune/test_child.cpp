// Programs that are spoken to in lines.
#include "tune/child.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;

Child shell(const std::string& script) { return Child({"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin"}); }

TEST(Child, AnswersLineByLine) {
  auto child = shell("while read line; do echo \"<$line>\"; done");
  std::string line;
  for (const auto* word : {"one", "two words", ""}) {
    ASSERT_TRUE(child.send(word));
    ASSERT_EQ(child.receive(5, line), Child::Answer::line);
    EXPECT_EQ(line, "<" + std::string(word) + ">");
  }
}

TEST(Child, ThatIsSilentTimesOutAndIsEndedWithWhatItStarted) {
  auto child = shell("sleep 77 & echo $!; sleep 77");
  std::string line;
  ASSERT_EQ(child.receive(5, line), Child::Answer::line);
  const auto grandchild = std::stoi(line);
  const auto start = Clock::now();
  EXPECT_EQ(child.receive(0.2, line), Child::Answer::timed_out);
  EXPECT_EQ(child.end(), "signal 9 (Killed)");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  for (int i = 0; i < 200 && kill(grandchild, 0) == 0; ++i) {  // a zombie until init has seen it
    timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
    if (FILE* state = std::fopen(("/proc/" + std::to_string(grandchild) + "/stat").c_str(), "r")) {
      char text[200] = {};
      (void)!std::fread(text, 1, sizeof text - 1, state);
      std::fclose(state);
      if (std::string(text).find(") Z") != std::string::npos) return;
    }
  }
  EXPECT_NE(kill(grandchild, 0), 0) << "what it started still runs";
}

TEST(Child, TellsHowItEndedAndItsLastWords) {
  auto child = shell("echo trouble >&2; kill -SEGV $$");
  std::string line;
  EXPECT_EQ(child.receive(5, line), Child::Answer::ended);
  EXPECT_EQ(child.end(), "signal 11 (Segmentation fault)");
  EXPECT_EQ(child.last_words(), "trouble");
  auto second = shell("exit 3");
  EXPECT_EQ(second.receive(5, line), Child::Answer::ended);
  for (int i = 0; i < 3; ++i) (void)second.send(std::string(1 << 16, 'x'));  // no SIGPIPE
  EXPECT_FALSE(second.send("anyone?"));
  EXPECT_EQ(second.end(), "exit status 3");
}

TEST(Child, ThatCannotBeStartedIsAnError) { EXPECT_THROW(Child({"/no/such/program"}, {}), std::runtime_error); }

}  // namespace
}  // namespace ejk
