// Portfolios of images against a count of all sets, on synthetic calls.
#include "spec/choose/portfolio.hpp"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace ejk::spec {
namespace {

struct Case {
  std::vector<std::int64_t> bytes;
  std::vector<Demand> demands;
};

Case random_case(std::mt19937& random, std::size_t images, std::size_t calls) {
  const auto below = [&](std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random); };
  Case result;
  for (std::size_t i = 0; i < images; ++i) result.bytes.push_back(static_cast<std::int64_t>(1 + below(50)));
  for (std::size_t d = 0; d < calls; ++d) {
    Demand demand{"call " + std::to_string(d), static_cast<double>(1 + below(5)), {}};
    std::vector<std::size_t> order(images);
    for (std::size_t i = 0; i < images; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    double cost = 100;
    const auto count = std::min(images, 1 + below(5));
    for (std::size_t i = 0; i < count; ++i) {
      demand.choices.push_back({order[i], below(6) == 0 ? std::nullopt : std::optional(cost)});
      cost = static_cast<double>(95 + below(100));
    }
    result.demands.push_back(std::move(demand));
  }
  return result;
}

// The definition, word by word.
using Score = std::tuple<double, double, double, std::int64_t>;
Score score_of(const Case& c, const std::vector<bool>& kept) {
  double unserved = 0, unknown = 0, regret = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) bytes += kept[i] ? c.bytes[i] : 0;
  for (const auto& demand : c.demands) {
    const Choice* got = nullptr;
    for (const auto& choice : demand.choices)
      if (!got && kept[choice.image]) got = &choice;
    if (!got)
      unserved += demand.weight;
    else if (got == &demand.choices.front())
      continue;
    else if (!got->cost || !demand.choices.front().cost)
      unknown += demand.weight;
    else
      regret += demand.weight * (*got->cost - *demand.choices.front().cost);
  }
  return {unserved, unknown, regret, bytes};
}

bool within(const Case& c, const std::vector<bool>& kept, double slack) {
  for (const auto& demand : c.demands) {
    const Choice* got = nullptr;
    double best = 1e300;
    for (const auto& choice : demand.choices) {
      if (!got && kept[choice.image]) got = &choice;
      if (choice.cost) best = std::min(best, *choice.cost);
    }
    if (!got) return false;
    if (got == &demand.choices.front()) continue;
    if (!demand.choices.front().cost || !got->cost || *got->cost > best * (1 + slack)) return false;
  }
  return true;
}

template <class Visit>
void for_all_sets(std::size_t images, Visit visit) {
  std::vector<bool> kept(images);
  for (std::size_t bits = 0; bits < std::size_t{1} << images; ++bits) {
    for (std::size_t i = 0; i < images; ++i) kept[i] = bits >> i & 1;
    visit(kept);
  }
}

Score best_score(const Case& c, std::int64_t limit) {
  Score best{1e300, 0, 0, 0};
  for_all_sets(c.bytes.size(), [&](const auto& kept) {
    if (const auto score = score_of(c, kept); std::get<3>(score) <= limit) best = std::min(best, score);
  });
  return best;
}

std::int64_t fewest_bytes(const Case& c, double slack) {
  std::int64_t fewest = 1'000'000;
  for_all_sets(c.bytes.size(), [&](const auto& kept) {
    if (within(c, kept, slack)) fewest = std::min(fewest, std::get<3>(score_of(c, kept)));
  });
  return fewest;
}

std::int64_t sum(const std::vector<std::int64_t>& bytes) {
  std::int64_t total = 0;
  for (const auto each : bytes) total += each;
  return total;
}

TEST(Portfolio, KeepsAllThatIsNeededIfItFits) {
  const std::vector<std::int64_t> bytes = {10, 10, 10};
  const std::vector<Demand> demands = {{"a", 1, {{0, 5.0}, {1, 6.0}}}, {"b", 1, {{1, 5.0}, {0, 9.0}}}};
  const auto all = least_regret(bytes, demands, 30);
  EXPECT_EQ(all.kept, (std::vector<bool>{true, true, false})) << "nobody calls the third";
  EXPECT_EQ(all.bytes, 20);
  EXPECT_EQ(all.served[0].regret, 0.0);
}

TEST(Portfolio, LeavesOutWhatCostsItsCallsLeast) {
  const std::vector<std::int64_t> bytes = {10, 10};
  std::vector<Demand> demands = {{"a", 1, {{0, 5.0}, {1, 6.0}}}, {"b", 1, {{1, 5.0}, {0, 9.0}}}};
  const auto one = least_regret(bytes, demands, 10);
  EXPECT_EQ(one.kept, (std::vector<bool>{false, true}));
  EXPECT_EQ(one.served[0].choice, 1u);
  EXPECT_EQ(one.served[0].regret, 1.0);
  demands[0].weight = 5;
  EXPECT_EQ(least_regret(bytes, demands, 10).kept, (std::vector<bool>{true, false})) << "the first is called more often";
  demands[0].choices[1].cost.reset();
  EXPECT_EQ(least_regret(bytes, demands, 10).kept, (std::vector<bool>{true, false}));
  EXPECT_EQ(judged(bytes, demands, {false, true}).served[0].regret, std::nullopt) << "nobody measured it";
  EXPECT_EQ(judged(bytes, demands, {false, false}).served[0].choice, std::nullopt);
}

TEST(Portfolio, AnImageThatStandsBeforeABetterOneIsCharged) {
  const std::vector<Demand> demands = {{"a", 1, {{0, 5.0}, {1, 50.0}, {2, 6.0}}}};
  EXPECT_EQ(judged(std::vector<std::int64_t>{1, 1, 1}, demands, {false, true, true}).served[0].regret, 45.0);
  EXPECT_EQ(smallest_within(std::vector<std::int64_t>{9, 1, 5}, demands, 0.25).kept, (std::vector<bool>{false, false, true}));
}

TEST(Portfolio, IsTheBestOfAllSetsWhereThereAreFew) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto c = random_case(random, 2 + static_cast<std::size_t>(round) % 9, 1 + static_cast<std::size_t>(round) % 12);
    const auto limit = sum(c.bytes) / (1 + round % 4);
    const auto found = least_regret(c.bytes, c.demands, limit);
    EXPECT_TRUE(found.exact);
    EXPECT_EQ(score_of(c, found.kept), best_score(c, limit)) << "round " << round;
    const double slack = 0.1 * (round % 5);
    const auto small = smallest_within(c.bytes, c.demands, slack);
    EXPECT_TRUE(within(c, small.kept, slack)) << "round " << round;
    EXPECT_EQ(small.bytes, fewest_bytes(c, slack)) << "round " << round;
  }
}

TEST(Portfolio, IsNearTheBestWhereThereAreMany) {
  std::mt19937 random(8);
  for (int round = 0; round < 6; ++round) {
    const auto c = random_case(random, 19, 25);
    const auto limit = sum(c.bytes) / (2 + round % 3);
    const auto found = least_regret(c.bytes, c.demands, limit);
    EXPECT_EQ(found.kept, least_regret(c.bytes, c.demands, limit).kept) << "the same every time";
    EXPECT_LE(found.bytes, limit);
    const auto score = score_of(c, found.kept), best = best_score(c, limit);
    EXPECT_LE(std::get<0>(score), std::get<0>(best) + 3) << "round " << round;
    if (std::get<0>(score) == std::get<0>(best)) {
      EXPECT_LE(std::get<1>(score), std::get<1>(best) + 6) << "round " << round;
    }
    const auto small = smallest_within(c.bytes, c.demands, 0.3);
    EXPECT_TRUE(within(c, small.kept, 0.3)) << "round " << round;
    EXPECT_LE(static_cast<double>(small.bytes), 1.15 * static_cast<double>(fewest_bytes(c, 0.3))) << "round " << round;
  }
}

TEST(Portfolio, OfHundredsOfImagesIsQuick) {
  std::mt19937 random(9);
  const auto c = random_case(random, 400, 300);
  const auto found = least_regret(c.bytes, c.demands, sum(c.bytes) / 4);
  EXPECT_LE(found.bytes, sum(c.bytes) / 4);
  EXPECT_TRUE(within(c, smallest_within(c.bytes, c.demands, 0.05).kept, 0.05));
}

}  // namespace
}  // namespace ejk::spec
