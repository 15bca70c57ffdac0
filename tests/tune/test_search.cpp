// The search and its statistics, on labs whose times and faults are made up.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/guard.hpp"
#include "ejk/autotune.hpp"
#include "reference/random.hpp"
#include "tune/paired.hpp"
#include "tune/search.hpp"
#include "tune/space.hpp"
#include "tune/tiles.hpp"

namespace ejk::search_test {
namespace {

using reference::Rng;

TEST(Paired, TheIntervalOfAMedianIsBoundedByOrderStatistics) {
  EXPECT_EQ(median_interval({1, 2, 3, 4, 5}).low, 0) << "five are too few";
  EXPECT_EQ(median_interval({1, 2, 3, 4, 5}).high, std::numeric_limits<double>::infinity());
  const auto six = median_interval({6, 1, 5, 2, 4, 3});
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
  std::vector<double> many;
  for (int i = 1; i <= 20; ++i) many.push_back(i);
  EXPECT_EQ(median_interval(many).low, 6) << "P(Binomial(20, 1/2) <= 5) is 2.07%";
  EXPECT_EQ(median_interval(many).high, 15);
}

TEST(Paired, AChallengerMustWinByMoreThanTheNoiseOfARound) {
  const auto ratios = [](double centre, double noise) {
    std::vector<double> list;
    for (int i = 0; i < 21; ++i) list.push_back(centre + noise * (i - 10) / 5);  // quartiles at +- noise
    return list;
  };
  EXPECT_TRUE(judge_challenger(ratios(0.9, 0.02)).wins);
  EXPECT_NEAR(judge_challenger(ratios(0.9, 0.02)).ratio, 0.9, 1e-12);
  EXPECT_FALSE(judge_challenger(ratios(0.95, 0.08)).wins) << "5% faster, rounds stray by 8%";
  EXPECT_FALSE(judge_challenger({0.5, 0.5, 0.5}).wins) << "three rounds say nothing";
  EXPECT_FALSE(judge_challenger({}).wins);
  EXPECT_FALSE(judge_challenger(ratios(1.1, 0.01)).wins);
}

TEST(Paired, EqualsHardlyEverBeatEachOther) {
  Rng rng(1);
  int wins = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> ratios;
    for (int round = 0; round < 31; ++round) ratios.push_back(std::exp(0.05 * (rng.normal() - rng.normal())));
    wins += judge_challenger(ratios).wins;
  }
  EXPECT_LE(wins, 20) << "one in a hundred";
}

TEST(ConfigOrder, CountsStepsOfValuesThenArchsThenVariants) {
  const auto config = [](std::int64_t block, bool packed, const char* arch = "a", const char* variant = "v") {
    return Config{variant, arch, {{"block", block}, {"packed", packed}}};
  };
  const std::vector<Config> space = {config(16, false), config(32, false), config(64, false), config(256, false), config(16, true)};
  const ConfigOrder order(space);
  EXPECT_EQ(order.distance(space[0], space[0]), 0);
  EXPECT_EQ(order.distance(space[0], space[1]), 1);
  EXPECT_EQ(order.distance(space[0], space[3]), 2) << "at most two a parameter";
  EXPECT_EQ(order.distance(space[1], space[4]), 2);
  EXPECT_GT(order.distance(space[0], config(16, false, "b")), order.distance(space[0], config(256, true)));
  EXPECT_GT(order.distance(space[0], config(16, false, "a", "w")), order.distance(space[0], config(16, false, "b")));
}

// Times by a function, with noise that hits a whole round and some that does not.
class MadeUp : public Lab {
 public:
  MadeUp(std::function<double(std::int64_t)> us, double noise) : us_(std::move(us)), noise_(noise) {}
  LabCall open(const Config&, double) override {
    LabCall call;
    call.checked_against = "nothing";
    return call;
  }
  Checked check(const Config& config, double) override {
    if (tile_of(config) == wrong) return {"made to be wrong"};
    if (tile_of(config) == broken) throw CodedError(ErrorCode::internal, "the lab burns");
    return {"", 0.5, us_(tile_of(config))};
  }
  Sampled sample(const Config& config, double) override {
    ++samples[tile_of(config)];
    if (tile_of(config) == dies_late && samples[tile_of(config)] > 3) return {"it died"};
    mood_ = std::clamp(mood_ * std::exp(0.1 * rng_.normal()), 0.3, 3.0);  // drifts: no two rounds are alike
    return {"", us_(tile_of(config)) * std::exp(noise_ * rng_.normal())};
  }
  std::int64_t wrong = 0, broken = 0, dies_late = 0;
  std::map<std::int64_t, int> samples;

 private:
  std::function<double(std::int64_t)> us_;
  double noise_, mood_ = 1;
  Rng rng_{7};
};

TuningOutcome run(const Tiles& kernel, Lab& lab, double seconds = 20) {
  const auto images = no_images();
  Invocation invocation;
  invocation.kernel = "tiles";
  return search(kernel, invocation, lab, *images, {seconds, 1, 4});
}

TEST(Search, FindsTheFastestOfASmallSpaceAndLeavesWrongOnesOut) {
  MadeUp lab([](std::int64_t tile) { return 100.0 - 5 * static_cast<double>(tile); }, 0.01);
  lab.wrong = 10;
  const auto outcome = run(Tiles(10), lab);
  EXPECT_EQ(tile_of(outcome.record.config), 9);
  EXPECT_NEAR(outcome.ratio, 55.0 / 95, 0.02);
  EXPECT_EQ(outcome.record.rejected, 1);
  EXPECT_EQ(lab.samples[10], 0) << "what is wrong is not timed";
  EXPECT_EQ(tile_of(outcome.record.baseline), 1);
  EXPECT_EQ(outcome.trials.size(), 10u);
  EXPECT_EQ(outcome.stopped, "all configs were looked at");
}

TEST(Search, TheDefaultStaysWhereNothingBeatsItBeyondTheNoise) {
  MadeUp lab([](std::int64_t) { return 100.0; }, 0.05);
  const auto outcome = run(Tiles(40), lab);
  EXPECT_EQ(tile_of(outcome.record.config), 1);
  EXPECT_EQ(outcome.ratio, 1);
  EXPECT_GT(outcome.record.noise, 0.01);
}

TEST(Search, ClearlySlowerOnesDropOutEarly) {
  MadeUp lab([](std::int64_t tile) { return tile == 1 ? 100.0 : tile == 2 ? 90.0 : 200.0; }, 0.01);
  run(Tiles(6), lab);
  EXPECT_GE(lab.samples[2], 5 + 7);
  for (std::int64_t tile = 3; tile <= 6; ++tile) EXPECT_EQ(lab.samples[tile], 2) << tile;
}

TEST(Search, WhatDiesInTheFinalDoesNotWin) {
  MadeUp lab([](std::int64_t tile) { return tile == 2 ? 50.0 : tile == 3 ? 80.0 : 100.0; }, 0.01);
  lab.dies_late = 2;
  const auto outcome = run(Tiles(4), lab);
  EXPECT_EQ(tile_of(outcome.record.config), 3);
  EXPECT_EQ(outcome.record.rejected, 1);
}

TEST(Search, ALargeSpaceIsSearchedAroundTheBestAndNotAsAWhole) {
  MadeUp lab([](std::int64_t tile) { return 100 + std::fabs(static_cast<double>(tile) - 21); }, 0.0005);
  const auto outcome = run(Tiles(2000), lab, 60);
  EXPECT_EQ(tile_of(outcome.record.config), 21);
  EXPECT_LT(outcome.trials.size(), 200u);
  EXPECT_NE(outcome.stopped.find("were no better"), std::string::npos) << outcome.stopped;
}

TEST(Search, KeepsToItsBudget) {
  class Slow : public MadeUp {
   public:
    Slow() : MadeUp([](std::int64_t tile) { return 10000.0 - static_cast<double>(tile); }, 0.001) {}
    Sampled sample(const Config& config, double seconds) override {
      timespec pause{0, 10'000'000};
      nanosleep(&pause, nullptr);
      return MadeUp::sample(config, seconds);
    }
  } lab;
  const auto outcome = run(Tiles(500), lab, 3);
  EXPECT_LT(outcome.seconds, 3.3);
  EXPECT_GT(outcome.seconds, 1.5);
  EXPECT_NE(outcome.stopped.find("the budget of 3 s was spent"), std::string::npos) << outcome.stopped;
}

TEST(Search, AFaultOfTheLabIsNoConfigsFault) {
  MadeUp lab([](std::int64_t) { return 100.0; }, 0.01);
  lab.broken = 3;
  EXPECT_THROW(run(Tiles(5), lab), CodedError);
}

// ---- kernels of a user, in this process ----

class Doubler : public Kernel {
 public:
  std::string name() const override { return "doubler"; }
  std::vector<Config> config_space(const Invocation&) const override { return {Tiles::with(1), Tiles::with(2), Tiles::with(3)}; }
  Result<Config> heuristic_cfg(const Invocation&) const override { return Tiles::with(1); }
  Status run(const Invocation& call, const Config& config) const override {
    const auto& x = call.tensors.at("x");
    auto* out = static_cast<float*>(call.tensors.at("out").data);
    const int repeats = tile_of(config) == 1 ? 200 : 1;
    for (int repeat = 0; repeat < repeats; ++repeat)
      for (std::int64_t i = 0; i < x.elements(); ++i)
        const_cast<volatile float*>(out)[i] = 2 * static_cast<const float*>(x.data)[i] + (tile_of(config) == 3 ? 1.0f : 0.0f);
    return {};
  }
};

TEST(LocalKernels, AreMeasuredOnCopiesAndWrongConfigsAreLeftOut) {
  Tensor x(DType::f32, {500}), out(DType::f32, {500});
  for (int i = 0; i < 500; ++i) x.data<float>()[i] = static_cast<float>(i), out.data<float>()[i] = -1;
  Invocation call;
  call.kernel = "doubler";
  call.tensors = {{"x", x}, {"out", out}};
  const auto record = autotune(Doubler(), call, {.budget_seconds = 5});
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(tile_of(record->config), 2);
  EXPECT_EQ(record->rejected, 1) << "tile 3 adds one";
  EXPECT_EQ(record->checked_against, "the default config's result");
  EXPECT_EQ(out.data<float>()[3], -1) << "the caller's tensor was written";
}

TEST(Benchmark, TimesAnyCallableByTheHostsClock) {
  int calls = 0;
  const auto measured = benchmark(
      [&] {
        ++calls;
        timespec pause{0, 2'000'000};
        nanosleep(&pause, nullptr);
      },
      {.seconds = 0.05});
  ASSERT_TRUE(measured);
  EXPECT_GE(measured->median_us, 2000);
  EXPECT_LT(measured->median_us, 20000);
  EXPECT_GE(measured->samples_us.size(), 5u);
  EXPECT_GE(calls, static_cast<int>(measured->samples_us.size()));
  EXPECT_EQ(measured->clock, "host");
}

TEST(Benchmark, WhatTheCallableThrowsIsAnError) {
  const auto measured = benchmark([] { throw std::runtime_error("no such luck"); });
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().message, "no such luck");
  EXPECT_FALSE(benchmark({}));
  EXPECT_FALSE(benchmark([] {}, {.seconds = 0}));
}

}  // namespace
}  // namespace ejk::search_test
