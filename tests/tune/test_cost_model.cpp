// The cost model on numbers worked out by hand, and what the search makes of it.
#include <gtest/gtest.h>

#include "ejk/record.hpp"
#include "ejk/records.hpp"
#include "emulator/simt.hpp"
#include "execute/facts.hpp"
#include "execute/store_fixture.hpp"
#include "record/placed_call.hpp"
#include "tests/paths.hpp"
#include "tune/cost_model.hpp"
#include "tune/fixture.hpp"
#include "tune/pruning.hpp"
#include "tune/tiles.hpp"

namespace ejk {
namespace {

spec::Arch gpu() {
  spec::Arch arch;
  arch.name = "sm_90a", arch.platform = "cuda";
  for (const auto& [name, value] : {std::pair{"sms", 132}, {"warp", 32}, {"shared_memory", 232448}, {"registers", 65536}})
    arch.properties[name] = std::int64_t{value};
  return arch;
}

spec::Arch cpu(std::int64_t threads) {
  spec::Arch arch;
  arch.name = "avx2", arch.platform = "cpu";
  arch.properties["threads"] = threads;
  return arch;
}

spec::LaunchGeometry launch(std::int64_t blocks, std::int64_t threads = 1, std::int64_t shared_bytes = 0) {
  spec::LaunchGeometry geometry;
  geometry.grid[0] = blocks;
  geometry.block[0] = threads;
  geometry.shared_bytes = shared_bytes;
  return geometry;
}

Fill on_gpu(const spec::LaunchGeometry& geometry, const spec::Resources& compiled = {}) {
  return fill_of(geometry, compiled, *processors_of(gpu()));
}

constexpr std::int64_t KiB = 1024;

TEST(CostModel, OneBlockTooManyCostsAWave) {
  EXPECT_NEAR(on_gpu(launch(132, 256, 200 * KiB)).efficiency, 1, 1e-12);
  EXPECT_NEAR(on_gpu(launch(133, 256, 200 * KiB)).efficiency, 133.0 / 264, 1e-12) << "0.504: 133 blocks, two waves of 132";
  EXPECT_EQ(on_gpu(launch(133, 256, 200 * KiB)).room, 1);
}

TEST(CostModel, AGridBelowOneWaveFillsItsPart) {
  EXPECT_NEAR(on_gpu(launch(33, 256)).efficiency, 0.25, 1e-12);
  EXPECT_NEAR(on_gpu(launch(33, 64)).efficiency, 0.25 / 4, 1e-12) << "two warps of the eight that hide latency";
  EXPECT_NEAR(on_gpu(launch(264, 64)).efficiency, 0.5, 1e-12) << "two such blocks at a time";
}

TEST(CostModel, SharedMemorySaysHowManyBlocksAProcessorHolds) {
  // A processor has 227 + 1 KiB; each block takes one for the system.
  EXPECT_EQ(on_gpu(launch(264, 128, 113 * KiB)).room, 2) << "2 * 114 = 228";
  EXPECT_NEAR(on_gpu(launch(264, 128, 113 * KiB)).efficiency, 1, 1e-12);
  EXPECT_EQ(on_gpu(launch(264, 128, 114 * KiB)).room, 1);
  EXPECT_NEAR(on_gpu(launch(264, 128, 114 * KiB)).efficiency, 0.5, 1e-12) << "four warps at a time";
  EXPECT_EQ(on_gpu(launch(264, 128, 100 * KiB), {{"shared_bytes", 20 * KiB}}).room, 1) << "static shared memory counts too";
  // 396 blocks: a full turn of two, then one alone: 396 / (2 waves * 264 slots).
  EXPECT_NEAR(on_gpu(launch(396, 128, 113 * KiB)).efficiency, 0.75, 1e-12);
}

TEST(CostModel, RegistersAndThreadsDoToo) {
  EXPECT_EQ(on_gpu(launch(1000, 256), {{"registers", 128}}).room, 2) << "128 * 256 is half of 65536";
  EXPECT_EQ(on_gpu(launch(1000, 256), {{"registers", 129}}).room, 1) << "129 are given as 136";
  EXPECT_EQ(on_gpu(launch(1000, 1024)).room, 2);
  EXPECT_EQ(on_gpu(launch(1000, 32)).room, 32);
  EXPECT_EQ(on_gpu(launch(1000, 1024), {{"registers", 255}}).room, 1) << "what cannot be launched is not the model's to reject";
  EXPECT_EQ(registers_of_block(129, 33, 32), 136 * 64) << "whole warps";
}

TEST(CostModel, ACpusThreadsTakeOneCellAtATime) {
  const auto efficiency = [](std::int64_t cells, std::int64_t threads) {
    return fill_of(launch(cells), {}, *processors_of(cpu(threads))).efficiency;
  };
  EXPECT_NEAR(efficiency(65, 64), 65.0 / 128, 1e-12);
  EXPECT_NEAR(efficiency(8, 64), 0.125, 1e-12);
  EXPECT_NEAR(efficiency(3, 2), 0.75, 1e-12);
  EXPECT_NEAR(efficiency(7, 1), 1, 1e-12);
}

TEST(CostModel, TheBestFilledLaunchCountsAndUnknownMachinesHaveNone) {
  const spec::Launch one{}, two{};
  spec::Geometry geometry;
  EXPECT_FALSE(fill_of(geometry, {}, gpu()));
  geometry.launches = {launch(1, 256), launch(99, 256)};
  EXPECT_NEAR(fill_of(geometry, {}, gpu())->efficiency, 0.75, 1e-12);
  spec::Arch unknown = gpu();
  unknown.properties.erase("sms");
  EXPECT_FALSE(fill_of(geometry, {}, unknown));
  auto fill = *fill_of(geometry, {}, gpu());
  fill.entry = "attend";
  EXPECT_EQ(words_of(fill), "attend has 99 blocks of 8 warps for 132 processors with room for 8 each");
  fill = fill_of(launch(1), {}, *processors_of(cpu(2)));
  fill.entry = "attend";
  EXPECT_EQ(words_of(fill), "attend has 1 cell for 2 threads");
}

// ---- of a spec's kernel ----

class CostModelOfASpec : public StoreTest {
 protected:
  void SetUp() override { ASSERT_TRUE(add_store(test::source_dir() + "/tests/tune/data")); }
  static std::optional<Fill> predicted(const std::string& platform, std::int64_t n) {
    const RecordedCall call(trap_call(platform, n));
    Trial trial;
    trial.config = *call.kernel().kernel_interface()->heuristic_cfg(call.invocation());
    return images_of(call.kernel(), call.invocation())->predict(trial);
  }
};

TEST_F(CostModelOfASpec, TakesItsGridAndTheMachineItIsOn) {
  const auto fill = predicted("cpu", 1000);
  ASSERT_TRUE(fill);
  EXPECT_EQ(fill->blocks, 1);
  EXPECT_NEAR(fill->efficiency, 1.0 / static_cast<double>(fill->processors), 1e-12);
  EXPECT_FALSE(predicted("cpu", 0)) << "nothing is launched";
}

TEST_F(CostModelOfASpec, OnTheEmulatorsFourProcessors) {
  add_backend(simt_backend());
  const auto fill = predicted("simt", 384);
  ASSERT_TRUE(fill);
  EXPECT_EQ(words_of(*fill), "trap has 6 blocks of 2 warps for 4 processors with room for 32 each");
  EXPECT_NEAR(fill->efficiency, 1.5 / 4, 1e-12) << "the busiest has 2 blocks, whose 4 warps keep half of it busy";
}

// ---- of what was measured on real machines ----

class CostModelOfShippedRecords : public StoreTest {
 protected:
  void SetUp() override { use_project_store(); }
};

PlacedCall placed(const TuningRecord& record) {
  auto node = nlohmann::json::parse(record.key);
  const auto device = node["device"].get<std::string>();
  const bool on_cpu = device.starts_with("cpu");
  const auto count = device.substr(device.rfind('-') + 1);  // "132sm", "2t"
  node["archs"] = {record.config.arch};
  node["properties"] = {{on_cpu ? "threads" : "sms", std::stoll(count)}};
  auto recorded = recorded_from_json(node.dump());
  if (!recorded) throw std::runtime_error(recorded.error().message);
  return PlacedCall(*recorded);
}

// The winner's part of the best efficiency of its variant; nullopt: it has no model.
std::optional<double> part_of_best(const TuningRecord& record) {
  const auto call = placed(record);
  const auto& binding = *call.binding();
  std::optional<double> winner;
  double best = 0;
  for (const auto& [variant, arch] : call.decider().eligible()) {
    if (variant->name != record.config.variant) continue;
    for (const auto& config : spec::config_space(*variant, *arch, binding)) {
      const auto fill = fill_of(spec::geometry_of(*variant, *arch, binding, config), {}, *arch);
      if (!fill) continue;
      best = std::max(best, fill->efficiency);
      if (public_config({{variant, arch}, config}) == record.config) winner = fill->efficiency;
    }
  }
  return winner ? std::optional(*winner / best) : std::nullopt;
}

TEST_F(CostModelOfShippedRecords, NoWinnerWouldHaveBeenPruned) {
  std::size_t known = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(test::source_dir() + "/specs/tuned")) {
    if (file.path().extension() != ".jsonl") continue;
    const auto records = read_records(file.path().string());
    ASSERT_EQ(message_of(records), "");
    for (const auto& row : records->rows) {
      if (row.record.config == row.record.baseline) continue;  // never pruned
      const auto part = part_of_best(row.record);
      known += part.has_value();
      EXPECT_GE(part.value_or(1), worth_timing) << row.record.key << "\n" << to_json(row.record.config);
    }
  }
  EXPECT_GT(known, 50u);
}

// ---- in the search ----

Config tile(std::int64_t value, const std::string& variant) { return {variant, "", {{"tile", value}}}; }

// Times by tile, exact.
class Times : public Lab {
 public:
  explicit Times(std::map<std::int64_t, double> us) : us_(std::move(us)) {}
  LabCall open(const Config&, double) override { return {}; }
  Checked check(const Config& config, double) override { return {"", 0.5, us_.at(tile_of(config))}; }
  Sampled sample(const Config& config, double) override {
    ++samples[tile_of(config)];
    return {"", us_.at(tile_of(config))};
  }
  std::map<std::int64_t, int> samples;

 private:
  std::map<std::int64_t, double> us_;
};

// Efficiencies by tile, before it is built and after.
class Fills : public TrialImages {
 public:
  explicit Fills(std::map<std::int64_t, double> planned, std::map<std::int64_t, double> built = {})
      : planned_(std::move(planned)), built_(built.empty() ? planned_ : std::move(built)) {}
  void prepare(const std::vector<Trial*>& trials, int) override {
    for (auto* trial : trials) trial->image = "built", prepared.push_back(tile_of(trial->config));
  }
  std::optional<Fill> predict(const Trial& trial) const override {
    Fill fill;
    fill.efficiency = (trial.image.empty() ? planned_ : built_).at(tile_of(trial.config));
    fill.entry = "rows", fill.blocks = 15, fill.processors = 132, fill.warps = 8;
    return fill;
  }
  std::vector<std::int64_t> prepared;

 private:
  std::map<std::int64_t, double> planned_, built_;
};

TuningOutcome run(Lab& lab, TrialImages& images, std::int64_t count, bool cost_model = true) {
  Invocation invocation;
  invocation.kernel = "tiles";
  return search(Tiles(count), invocation, lab, images, {20, 1, 1, cost_model});
}

const Trial* trial_with(const TuningOutcome& outcome, std::int64_t value) {
  for (const auto& trial : outcome.trials)
    if (tile_of(trial.config) == value) return &trial;
  return nullptr;
}

TEST(SearchWithACostModel, WhatCannotFillTheMachineIsNeitherBuiltNorTimedAndTold) {
  Times lab({{1, 100}, {2, 80}, {3, 50}, {4, 90}});
  Fills images({{1, 0.1}, {2, 0.9}, {3, 0.11}, {4, 0.31}});
  const auto outcome = run(lab, images, 4);
  EXPECT_EQ(tile_of(outcome.record.config), 2);
  ASSERT_EQ(outcome.trials.size(), 4u);
  const auto* pruned = trial_with(outcome, 3);
  EXPECT_EQ(pruned->state, Trial::State::pruned);
  EXPECT_EQ(pruned->reason,
            "the cost model gives it 0.11 of the machine, the best of its variant has 0.9: rows has 15 blocks of 8 warps for 132 "
            "processors with room for 1 each");
  EXPECT_EQ(lab.samples[3], 0);
  EXPECT_EQ(images.prepared, (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(trial_with(outcome, 1)->state, Trial::State::measured) << "the default is never pruned";
  EXPECT_EQ(trial_with(outcome, 4)->state, Trial::State::measured) << "0.31 is more than a third of 0.9";
  EXPECT_EQ(outcome.space, 4u);
  EXPECT_EQ(outcome.record.rejected, 0);
  EXPECT_EQ(outcome.stopped, "all configs were looked at that were not pruned");
}

TEST(SearchWithACostModel, TurnedOffItPrunesNothing) {
  Times lab({{1, 100}, {2, 80}, {3, 50}});
  Fills images({{1, 0.1}, {2, 0.9}, {3, 0.11}});
  const auto outcome = run(lab, images, 3, false);
  EXPECT_EQ(tile_of(outcome.record.config), 3);
  EXPECT_GT(lab.samples[3], 0);
  EXPECT_EQ(trial_with(outcome, 3)->predicted, 0);
}

TEST(SearchWithACostModel, AtEqualDistanceTheBetterFilledComesFirst) {
  Times lab({{1, 100}, {2, 100}, {3, 100}, {4, 100}, {5, 100}});
  Fills images({{1, 0.5}, {2, 0.5}, {3, 0.6}, {4, 0.9}, {5, 0.7}});
  run(lab, images, 5);
  EXPECT_EQ(images.prepared, (std::vector<std::int64_t>{1, 2, 4, 5, 3})) << "3, 4 and 5 are two steps from the default";
}

TEST(SearchWithACostModel, CompiledResourcesMayShowIt) {
  Times lab({{1, 100}, {2, 50}, {3, 90}});
  Fills images({{1, 0.9}, {2, 0.9}, {3, 0.9}}, {{1, 0.8}, {2, 0.2}, {3, 0.8}});
  const auto outcome = run(lab, images, 3);
  EXPECT_EQ(trial_with(outcome, 2)->state, Trial::State::pruned);
  EXPECT_EQ(lab.samples[2], 0);
  EXPECT_EQ(tile_of(outcome.record.config), 3);
}

TEST(SearchWithACostModel, WhenAllOthersArePrunedTheDefaultStays) {
  Times lab({{1, 100}, {2, 50}});
  Fills images({{1, 0.9}, {2, 0.2}});
  const auto outcome = run(lab, images, 2);
  EXPECT_EQ(tile_of(outcome.record.config), 1);
  EXPECT_EQ(outcome.record.measured, 1);
}

TEST(Pruning, ComparesWithinAVariantAlone) {
  Trial full, empty;
  full.config = tile(1, "plain"), empty.config = tile(2, "mma");
  BestFill best;
  const Fills images({{1, 1.0}, {2, 0.1}});
  EXPECT_TRUE(prune({&full, &empty}, nullptr, images, best).empty()) << "another variant may need less of the machine";
  empty.config.variant = "plain";
  EXPECT_TRUE(prune({&full, &empty}, &empty, images, best).empty()) << "the default is spared";
  EXPECT_EQ(prune({&full, &empty}, nullptr, images, best), std::vector<Trial*>{&empty});
}

}  // namespace
}  // namespace ejk
