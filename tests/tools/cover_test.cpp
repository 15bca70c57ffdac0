// Covering samples: nothing that an image can be made of is left out, another seed meets others, and few are taken.
#include "sample/cover.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace ejk::tools {
namespace {

// A kernel of two variants on five archs: types, sizes and three options, and two config parameters.
std::vector<CoverItem> items_of_a_kernel(std::uint64_t seed) {
  std::vector<CoverItem> items;
  for (const std::string variant : {"tiled", "plain"})
    for (int arch = 0; arch < 5; ++arch)
      for (int bits = 0; bits < 24; ++bits)
        for (int block = 0; block < 3; ++block) {
          const std::string type = bits / 8 == 0 ? "f32" : bits / 8 == 1 ? "f16" : "bf16";
          const std::vector<std::pair<std::string, spec::Value>> specialisation = {
              {"E", type}, {"causal", bits % 2 == 1}, {"packed", bits / 2 % 2 == 1}, {"dropped", bits / 4 % 2 == 1}};
          const spec::Config config = {{"block", std::int64_t{block}}, {"stages", std::int64_t{(block + bits) % 4}}};
          const auto id = variant + "." + std::to_string(arch) + "." + std::to_string(bits) + "." + std::to_string(block);
          items.push_back(cover_item(id, "k", variant, "cpu:" + std::to_string(arch), specialisation, config, seed));
        }
  return items;
}

std::set<std::string> features_of(const std::vector<CoverItem>& items, const std::vector<std::size_t>& chosen) {
  std::set<std::string> features;
  for (const auto i : chosen) features.insert(items[i].features.begin(), items[i].features.end());
  return features;
}

std::set<std::string> ids_of(const std::vector<CoverItem>& items, const std::vector<std::size_t>& chosen) {
  std::set<std::string> ids;
  for (const auto i : chosen) ids.insert(items[i].id);
  return ids;
}

std::vector<std::size_t> all_of(const std::vector<CoverItem>& items) {
  std::vector<std::size_t> all(items.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

TEST(Cover, FeaturesAreArchsValuesPairsOfOptionsAndConfigs) {
  const std::vector<std::pair<std::string, spec::Value>> specialisation = {{"E", std::string("f32")}, {"D", std::int64_t{64}}, {"c", true}};
  const std::set<std::string> daily = {"k v ",          "cpu:a",           "k v cpu:a",     "k v with E=f32",
                                       "k v with D=64", "k v with c=true", "k v config m=4"};
  const std::set<std::string> pairs = {"k v with E=f32 D=64", "k v with E=f32 c=true", "k v with D=64 c=true"};
  std::multiset<std::string> met;
  for (std::uint64_t seed = 20260131; seed < 20260131 + pair_days; ++seed) {
    const auto item = cover_item("id", "k", "v", "cpu:a", specialisation, {{"m", std::int64_t{4}}}, seed);
    const std::set<std::string> found(item.features.begin(), item.features.end());
    EXPECT_TRUE(std::ranges::includes(found, daily)) << "seed " << seed;
    std::ranges::set_difference(found, daily, std::inserter(met, met.end()));
  }
  EXPECT_EQ(met, std::multiset<std::string>(pairs.begin(), pairs.end())) << "each pair in one of so many days";
}

TEST(Cover, MeetsAVariantAndAnArchOfAGpuEveryDayButBothTogetherEverySecond) {
  for (const std::string arch : {"cuda:sm_80", "cuda:sm_90a", "hip:gfx942"}) {
    int together = 0;
    for (std::uint64_t seed = 20260131; seed < 20260131 + arch_days; ++seed) {
      const auto item = cover_item("id", "k", "v", arch, {}, {}, seed);
      const std::set<std::string> found(item.features.begin(), item.features.end());
      EXPECT_TRUE(found.contains("k v ") && found.contains(arch)) << arch << ", seed " << seed;
      together += found.contains("k v " + arch) ? 1 : 0;
    }
    EXPECT_EQ(together, 1) << arch;
  }
}

TEST(Cover, OfABriefLookHasEveryVariantOnEveryArch) {
  std::vector<CoverItem> items;
  for (const std::string variant : {"tiled", "plain"})
    for (const std::string arch : {"cpu:avx2", "cuda:sm_80", "cuda:sm_90a", "hip:gfx942"})
      for (const std::string type : {"f32", "bf16"}) items.push_back(brief_item(variant + arch + type, "k", variant, arch));
  EXPECT_EQ(covering_sample(items, 7).size(), 8u);
}

TEST(Cover, MeetsEveryFeatureWithFewItemsForAnySeed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto items = items_of_a_kernel(seed);
    const auto sample = covering_sample(items, seed);
    EXPECT_EQ(features_of(items, sample), features_of(items, all_of(items)));
    EXPECT_LE(sample.size(), items.size() / 30) << "seed " << seed;  // 720 items; two variants need 5 each for their archs
    EXPECT_TRUE(std::ranges::is_sorted(sample));
  }
}

TEST(Cover, TakesNoItemTwiceAndOnesThatAreAlone) {
  const std::vector<CoverItem> items = {{"a", {"x"}}, {"b", {"x", "y"}}, {"c", {"z"}}, {"d", {}}};
  EXPECT_EQ(covering_sample(items, 7), (std::vector<std::size_t>{1, 2}));
  EXPECT_TRUE(covering_sample({}, 7).empty());
}

TEST(Cover, TakesBuiltItemsFirstAndOfTheOthersWhatTheyLack) {
  const std::vector<CoverItem> items = {
      {"a", {"x", "y"}}, {"b", {"x"}, true}, {"c", {"y"}, true}, {"d", {"x", "y", "z"}}, {"e", {"y"}, true}};
  const auto sample = covering_sample(items, 7);
  EXPECT_EQ(sample.size(), 3u);
  EXPECT_EQ(sample.front(), 1u);
  EXPECT_EQ(std::ranges::count(sample, 3u), 1) << "z is d's alone";
  EXPECT_EQ(std::ranges::count(sample, 0u), 0);
}

TEST(Cover, TheSeedAloneDecidesNotTheOrder) {
  const auto items = items_of_a_kernel(3);
  auto reversed = items;
  std::ranges::reverse(reversed);
  EXPECT_EQ(ids_of(items, covering_sample(items, 3)), ids_of(reversed, covering_sample(reversed, 3)));
}

TEST(Cover, SeedsTogetherMeetEveryItem) {
  const auto count = items_of_a_kernel(0).size();
  std::set<std::size_t> met;
  for (std::uint64_t seed = 0; seed < 800; ++seed)
    for (const auto i : covering_sample(items_of_a_kernel(seed), seed)) met.insert(i);
  EXPECT_GE(met.size(), count * 95 / 100);
}

TEST(Cover, DrawsBelowTheCount) {
  std::set<std::size_t> drawn_numbers;
  for (std::uint64_t seed = 0; seed < 50; ++seed) drawn_numbers.insert(drawn(seed, "case", 3));
  EXPECT_EQ(drawn_numbers, (std::set<std::size_t>{0, 1, 2}));
  EXPECT_EQ(drawn(5, "case", 3), drawn(5, "case", 3));
  EXPECT_EQ(drawn(5, "case", 0), 0u);
}

}  // namespace
}  // namespace ejk::tools
