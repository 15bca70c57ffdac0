// The state of a run, its progress line and its page.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tune/tune_progress.hpp"
#include "tune/tune_report.hpp"
#include "tune/tune_state.hpp"

namespace ejk::tools::report_test {
namespace {

Config tile(std::int64_t value) { return {"rows", "cpu:avx2", {{"tile", value}}}; }

Trial trial(std::int64_t value, Trial::State state, std::vector<double> ratios = {}, const std::string& reason = "") {
  Trial result{tile(value), "k.rows.t" + std::to_string(value), "abcd", state, reason, 0.25, {}, ratios, 1.5, 0.5};
  for (const double ratio : ratios) result.samples_us.push_back(100 * ratio);
  return result;
}

TuningOutcome outcome() {
  TuningOutcome result;
  result.record.key = R"({"device":"cpu-x","kernel":"k"})";
  result.record.config = tile(2);
  result.record.baseline = tile(1);
  result.record.samples_us = {80, 81};
  result.record.median_us = 80.5;
  result.record.baseline_us = 100;
  result.record.noise = 0.01;
  result.record.measured = 2;
  result.record.rejected = 1;
  result.record.checked_against = "float64 reference";
  result.record.machine = "a <machine> & \"more\"";
  result.call.flops = 1e6, result.call.bytes = 1e6, result.call.memory = "cold";
  result.space = 4;
  result.trials = {trial(1, Trial::State::measured), trial(2, Trial::State::measured, {0.8, 0.81, 0.79}),
                   trial(3, Trial::State::rejected, {}, "its process ended: signal 11 <Segmentation fault>")};
  result.trials[0].samples_us = {99, 100, 101};
  result.progress = {{0.1, 1}, {2, 0.8}};
  result.ratio = 0.8;
  result.seconds = 3;
  result.stopped = "all configs were looked at";
  return result;
}

TuneReport report() {
  TuneReport result{"k", "ejk tune k", "2026-01-01", "cpu-x", 60, 3, 1e11, 1e10, {}};
  result.cases.push_back({"one & only", "", outcome()});
  result.cases.push_back({"second", "", outcome()});
  result.cases.back().outcome.ratio = 1;
  result.cases.back().outcome.record.config = tile(1);
  result.cases.push_back({"third", "the default config <x> cannot be measured"});
  result.cases.push_back({"fourth", "only one config is valid", {}, true});
  return result;
}

// Every tag is closed by its own, in order.
std::string first_unbalanced(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const auto end = page.find('>', at);
    if (end == std::string::npos) return "a tag without an end";
    const auto tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with("!") || tag.ends_with("/")) continue;
    const auto name = tag.substr(tag.starts_with("/") ? 1 : 0, tag.find_first_of(" \n") - (tag.starts_with("/") ? 1 : 0));
    if (!tag.starts_with("/")) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> after <" + (open.empty() ? "" : open.back()) + ">";
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

TEST(TunePage, IsWellFormedAndNeedsNothingFromElsewhere) {
  const auto page = html(report());
  EXPECT_EQ(first_unbalanced(page), "");
  for (const auto* foreign : {"<script", "http:", "https:", "@import", "url(", "src="})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
}

TEST(TunePage, ShowsTimesWithNoiseRejectionsProgressRooflineAndTheMean) {
  const auto page = html(report());
  for (const auto* part : {"aria-label=\"time of each config\"", "class=\"whisker\"", "aria-label=\"best so far\"",
                           "aria-label=\"roofline\"", "signal 11 &lt;Segmentation fault&gt;", "Geometric mean: <b>1.118</b>",
                           "one &amp; only", "the default config &lt;x&gt; cannot be measured", "a &lt;machine&gt; &amp; &quot;more&quot;"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(TunePage, ListsWhatTheCostModelPruned) {
  auto with = report();
  with.cases[0].outcome.trials.push_back(trial(4, Trial::State::pruned, {}, "the cost model gives it 0.11 of the machine"));
  const auto page = html(with);
  EXPECT_NE(page.find("<td class=\"dim\">pruned</td><td>the cost model gives it 0.11 of the machine</td>"), std::string::npos);
  EXPECT_NE(page.find("2 of 4 configs timed, 1 rejected, 1 pruned by the cost model"), std::string::npos);
  EXPECT_EQ(counted(with.cases[1]), "2 of 4 configs timed, 1 rejected");
  const auto again = outcome_from_json(to_json(with.cases[0].outcome));
  EXPECT_EQ(again.trials.back().state, Trial::State::pruned);
  EXPECT_EQ(again.trials.back().predicted, 0.5);
}

TEST(TuneTable, ComparesTunedWithHeuristicAndGivesTheMean) {
  EXPECT_NEAR(mean_speed_up(report()), std::sqrt(1.25), 1e-9);
  const auto table = markdown(report());
  EXPECT_NE(table.find("Geometric mean over 2 cases: 1.118 times the heuristic's speed; 1 have another config"), std::string::npos)
      << table;
  EXPECT_NE(table.find("1.250"), std::string::npos);
  EXPECT_NE(table.find("- third: the default config"), std::string::npos);
  EXPECT_NE(table.find("- only one config is valid: fourth"), std::string::npos);
  EXPECT_EQ(to_json(report())["cases"].size(), 4u);
}

TEST(TuneState, GivesBackWhatWasFinishedAndPassesOverTornLines) {
  const auto folder = std::filesystem::temp_directory_path() / ("ejk-tune-state-" + std::to_string(getpid()));
  const auto file = folder / "below" / "run.jsonl";
  const std::string first = R"({"device":"cpu-x","kernel":"k"})", second = R"({"device":"cpu-x","kernel":"l"})";
  {
    TuneState state(file, false);
    state.add(first, trial(3, Trial::State::rejected, {}, "it hung"));
    state.add(first, trial(2, Trial::State::measured, {0.8, 0.9}));
    state.add(second, outcome());
  }
  std::ofstream(file, std::ios::app) << R"({"key": {"device":"cpu-x","kernel":"k"}, "trial": {"conf)";
  TuneState resumed(file, true);
  Trial known{tile(3), {}, {}, Trial::State::waiting, {}, 0, {}, {}, 0, 0};
  EXPECT_TRUE(resumed.known(first, "abcd", known));
  EXPECT_EQ(known.state, Trial::State::rejected);
  EXPECT_EQ(known.reason, "it hung");
  known.config = tile(2);
  EXPECT_FALSE(resumed.known(first, "another source", known)) << "the template has changed";
  EXPECT_TRUE(resumed.known(first, "abcd", known));
  EXPECT_EQ(known.ratios, (std::vector<double>{0.8, 0.9}));
  EXPECT_FALSE(resumed.known(second, "abcd", known));
  EXPECT_EQ(resumed.finished(first), nullptr);
  ASSERT_NE(resumed.finished(second), nullptr);
  EXPECT_EQ(to_json(*resumed.finished(second)), to_json(outcome()));
  resumed.add(first, trial(4, Trial::State::slow, {}, "slow"));
  EXPECT_EQ(TuneState(file, true).configs(), 3u + 3u);
  EXPECT_EQ(TuneState(file, false).configs(), 0u) << "without resume it begins anew";
  resumed.remove();
  EXPECT_FALSE(std::filesystem::exists(file));
  std::filesystem::remove_all(folder);
}

TEST(TuneProgressLine, TellsTheTimeLeftByThePaceButNoMoreThanTheBudget) {
  TuneProgressState state{1, 4, 10, 60, 0.5, "k: checking"};
  EXPECT_NEAR(tune_seconds_left(state), 10 / 1.5 * 2.5, 1e-9);
  state.budget = 15;
  EXPECT_EQ(tune_seconds_left(state), 5);
  EXPECT_EQ(tune_progress_line(state, 120), "[#######.............] 1/4 calls  38%  elapsed 10 s  left 5 s  k: checking");
  EXPECT_EQ(tune_progress_line(state, 40).size(), 39u);
}

}  // namespace
}  // namespace ejk::tools::report_test
