// Which images to keep: the least regret within a size, or the smallest set within a slowdown. Deterministic; exact where the sets are few.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ejk::spec {

// An image that can serve a call. cost: of the call with it, in any one unit; nullopt: nobody measured it.
struct Choice {
  std::size_t image = 0;  // index into the sizes
  std::optional<double> cost;
};

// A call and all that can serve it, in the order in which the runtime would take them: the first is what it chooses if it has all.
struct Demand {
  std::string name;
  double weight = 1;  // how often it is called
  std::vector<Choice> choices;
};

struct Served {
  std::optional<std::size_t> choice;  // index into the demand's choices; nullopt: no kept image serves it
  // What the kept image costs beyond the first choice; nullopt: not served, or one of the two was not measured. The first choice itself: 0.
  std::optional<double> regret;
};

struct Portfolio {
  std::vector<bool> kept;  // by image
  std::int64_t bytes = 0;
  std::vector<Served> served;  // by demand
  bool exact = false;          // no set is better; else found by greedy steps and exchanges
};

// What each demand gets of a set of images.
Portfolio judged(std::span<const std::int64_t> bytes, std::span<const Demand> demands, std::vector<bool> kept);

// Of all sets of at most `limit` bytes the one that leaves the fewest calls unserved, then the fewest with an unknown cost, then the least
// weighted regret, then the fewest bytes.
Portfolio least_regret(std::span<const std::int64_t> bytes, std::span<const Demand> demands, std::int64_t limit);

// The fewest bytes with which every demand is served by its first choice, or by one that costs at most (1 + slack) times the cheapest
// measured one; where the first was not measured, only it will do.
Portfolio smallest_within(std::span<const std::int64_t> bytes, std::span<const Demand> demands, double slack);

}  // namespace ejk::spec
