// The progress line of a build.
#include "tools/command_line/progress_line.hpp"

#include <gtest/gtest.h>

namespace ejk::tools {
namespace {

TEST(ProgressLine, ShowsDoneTotalPercentTimesAndWhatIsCompiling) {
  const ProgressState state{12, 24, 12, 8, {"mean_pooling.a", "mean_pooling.b", "mean_pooling.c"}};
  EXPECT_EQ(progress_line(state, 200), "[##########..........] 12/24  50%  elapsed 8 s  left 8 s  mean_pooling.a (+2)");
}

TEST(ProgressLine, HasNoGuessBeforeAnythingWasCompiled) {
  EXPECT_EQ(progress_line({3, 10, 0, 0.2, {}}, 200), "[######..............] 3/10  30%  elapsed 0 s  left ?");
}

TEST(ProgressLine, CountsPresentImagesAsNoWork) {
  EXPECT_DOUBLE_EQ(seconds_left({90, 100, 2, 4, {}}), 20) << "2 s a compiled image, 10 to go";
}

TEST(ProgressLine, NeverFillsTheLine) {
  const ProgressState state{1, 2, 1, 1, {std::string(300, 'x')}};
  for (std::size_t width : {1, 2, 3, 4, 5, 20, 80, 200}) EXPECT_LE(progress_line(state, width).size(), std::max<std::size_t>(1, width - 1));
  EXPECT_TRUE(progress_line(state, 80).ends_with("..."));
}

TEST(ProgressLine, OfNothingIsDone) { EXPECT_EQ(percent_done({}), 100); }

TEST(ProgressLine, WritesDurationsAsClocksDo) {
  EXPECT_EQ(duration_text(7.4), "7 s");
  EXPECT_EQ(duration_text(65), "1:05");
  EXPECT_EQ(duration_text(7384), "2:03:04");
}

}  // namespace
}  // namespace ejk::tools
