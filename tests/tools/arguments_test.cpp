// Command lines: what is taken, what is refused and how.
#include "command_line/arguments.hpp"

#include <gtest/gtest.h>

namespace ejk::tools::arguments_test {
namespace {

Arguments sample() {
  Arguments arguments("bench", "KERNEL [options]", "Times.", "ejk bench mean_pooling");
  arguments.word("KERNEL", true).word("SECOND", false);
  arguments.option("seconds", "S", "time").option("config", "JSON", "config").list("store", "DIR", "store").flag("json", "as JSON");
  return arguments;
}

std::string refusal(const std::vector<std::string>& words) {
  auto arguments = sample();
  try {
    arguments.parse(words);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Arguments, OptionsWordsListsAndFlagsAreRead) {
  auto arguments = sample();
  ASSERT_TRUE(arguments.parse(std::vector<std::string>{"mean_pooling", "--seconds", "0.5", "--store=a", "--store", "b", "--json"}));
  EXPECT_EQ(arguments.text("KERNEL"), "mean_pooling");
  EXPECT_FALSE(arguments.has("SECOND"));
  EXPECT_EQ(arguments.number("seconds", 1, 0, 10), 0.5);
  EXPECT_EQ(arguments.texts("store"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(arguments.has("json"));
  EXPECT_FALSE(arguments.has("config"));
}

TEST(Arguments, AFlagThatIsNotGivenIsNotSet) {
  auto arguments = sample();
  ASSERT_TRUE(arguments.parse(std::vector<std::string>{"x"}));
  EXPECT_FALSE(arguments.has("json"));
}

TEST(Arguments, AnUnknownOptionIsRefusedWithTheNearestOne) {
  EXPECT_EQ(refusal({"x", "--secnds", "1"}), "unknown option '--secnds'; did you mean 'seconds'?");
}

TEST(Arguments, AMissingWordIsRefusedWithTheUsage) {
  EXPECT_EQ(refusal({"--json"}), "KERNEL is missing; usage: ejk bench KERNEL [options]");
}

TEST(Arguments, TooManyWordsAreRefused) { EXPECT_EQ(refusal({"a", "b", "c"}), "too many words; usage: ejk bench KERNEL [options]"); }

TEST(Arguments, AShortenedOptionIsNotGuessed) { EXPECT_NE(refusal({"x", "--sec", "1"}), ""); }

TEST(Arguments, AnOptionGivenTwiceIsRefused) { EXPECT_NE(refusal({"x", "--seconds", "1", "--seconds", "2"}), ""); }

TEST(Arguments, NumbersAreCheckedWhole) {
  auto arguments = sample();
  ASSERT_TRUE(arguments.parse(std::vector<std::string>{"x", "--seconds", "3x"}));
  EXPECT_THROW(arguments.number("seconds", 1, 0, 10), UsageError);
  EXPECT_THROW(arguments.integer("seconds", 1, 0, 10), UsageError);
}

TEST(Arguments, ListsOfIntegersAreChecked) {
  EXPECT_EQ(integer_list("threads", "1,2,16", 1, 64), (std::vector<std::int64_t>{1, 2, 16}));
  EXPECT_THROW(integer_list("threads", "1,,2", 1, 64), UsageError);
  EXPECT_THROW(integer_list("threads", "0", 1, 64), UsageError);
  EXPECT_THROW(integer_list("threads", "", 1, 64), UsageError);
}

TEST(Arguments, PatternsMatchWholeNames) {
  EXPECT_TRUE(matches("minilm.*", "minilm.f32"));
  EXPECT_FALSE(matches("minilm", "minilm.f32"));
  EXPECT_FALSE(matches("", "minilm"));
}

}  // namespace
}  // namespace ejk::tools::arguments_test
