// The quick portfolio against its plain form, and how its time grows.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "generator/plain_portfolio.hpp"
#include "spec/choose/portfolio.hpp"
#include "tests/growth.hpp"

namespace ejk::spec {
namespace {

struct Instance {
  std::vector<std::int64_t> bytes;
  std::vector<Demand> demands;
  std::int64_t total() const { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }
};

// Calls of `images_each` images that they share with their neighbours, as calls of one specialisation do. Costs are whole numbers, whose
// sums the plain form has without rounding, too; of few values, so that there are ties.
Instance random_instance(std::mt19937& random, std::size_t images, std::size_t calls, std::size_t spread) {
  const auto below = [&](std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random); };
  Instance result;
  for (std::size_t i = 0; i < images; ++i) result.bytes.push_back(static_cast<std::int64_t>(1 + below(8)));
  for (std::size_t d = 0; d < calls; ++d) {
    Demand demand{"call", static_cast<double>(1 + below(3)), {}};
    std::vector<std::size_t> near;
    for (std::size_t i = 0; i < std::min(spread, images); ++i) near.push_back((d * images / calls + i) % images);
    std::shuffle(near.begin(), near.end(), random);
    near.resize(std::min(near.size(), below(7)));  // at times nothing serves it
    for (const auto image : near)
      demand.choices.push_back({image, below(6) == 0 ? std::nullopt : std::optional(static_cast<double>(100 + below(8)))});
    if (!near.empty() && below(10) == 0) demand.choices.push_back({near.front(), 101.0});  // named twice
    result.demands.push_back(std::move(demand));
  }
  return result;
}

TEST(PortfolioScale, TheQuickFormChoosesWhatThePlainOneDoes) {
  std::mt19937 random(22);
  for (std::size_t round = 0; round < 200; ++round) {
    const auto c = random_instance(random, 2 + round % 40, 1 + round * 7 % 60, 12);
    const auto limit = c.total() * static_cast<std::int64_t>(round % 5) / 5;
    const auto quick = least_regret(c.bytes, c.demands, limit), plain = plain::least_regret(c.bytes, c.demands, limit);
    ASSERT_EQ(quick.kept, plain.kept) << "round " << round;
    ASSERT_EQ(std::tie(quick.bytes, quick.exact), std::tie(plain.bytes, plain.exact)) << "round " << round;
    const double slack = 0.01 * static_cast<double>(round % 6);
    ASSERT_EQ(smallest_within(c.bytes, c.demands, slack).kept, plain::smallest_within(c.bytes, c.demands, slack).kept) << "round " << round;
  }
}

double seconds_for(std::size_t calls) {
  std::mt19937 random(23);
  const auto c = random_instance(random, calls, calls, 20);
  return test::processor_seconds([&] {
    smallest_within(c.bytes, c.demands, 0.03);
    least_regret(c.bytes, c.demands, c.total() / 3);
  });
}

TEST(PortfolioScale, TwiceTheCallsTakeLessThanThreeTimesAsLong) {
  const double some = seconds_for(1500), twice = seconds_for(3000);
  RecordProperty("seconds_1500", std::to_string(some));
  RecordProperty("seconds_3000", std::to_string(twice));
  EXPECT_LT(twice, 3 * some) << some << " s, then " << twice << " s";
  EXPECT_LT(twice, 10) << "a debug build; a release build takes a fraction of a second";
}

}  // namespace
}  // namespace ejk::spec
