// The portfolio's algorithm in its plain form, which judges every image anew at each step: what the quick one must agree with.
#pragma once
#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "spec/choose/portfolio.hpp"

namespace ejk::spec::plain {

using Set = std::vector<bool>;
inline constexpr std::size_t most_exact = 16;  // images: 65,536 sets

// What a set costs; less is better, the first field counts first.
struct Score {
  double unserved = 0, unknown = 0, regret = 0;
  std::int64_t bytes = 0;
  friend bool operator<(const Score& a, const Score& b) {
    return std::tie(a.unserved, a.unknown, a.regret, a.bytes) < std::tie(b.unserved, b.unknown, b.regret, b.bytes);
  }
};

class Problem {
 public:
  Problem(std::span<const std::int64_t> bytes, std::span<const Demand> demands) : bytes_(bytes), demands_(demands), touched_(bytes.size()) {
    for (std::size_t d = 0; d < demands.size(); ++d)
      for (const auto& choice : demands[d].choices)
        if (touched_[choice.image].empty() || touched_[choice.image].back() != d) touched_[choice.image].push_back(d);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (!touched_[i].empty()) useful_.push_back(i);
  }

  const std::vector<std::size_t>& useful() const { return useful_; }

  Served served(const Demand& demand, const Set& kept) const {
    for (std::size_t i = 0; i < demand.choices.size(); ++i)
      if (kept[demand.choices[i].image]) return {i, regret(demand, i)};
    return {};
  }

  Score score(const Set& kept) const {
    Score total;
    for (const auto& demand : demands_) add(total, demand, kept, 1);
    for (const auto i : useful_) total.bytes += kept[i] ? bytes_[i] : 0;
    return total;
  }

  // The score of the set with one image put in or taken out, from the score of the set.
  Score flipped(Score score, Set& kept, std::size_t image) const {
    for (const auto d : touched_[image]) add(score, demands_[d], kept, -1);
    kept[image] = !kept[image];
    for (const auto d : touched_[image]) add(score, demands_[d], kept, 1);
    score.bytes += kept[image] ? bytes_[image] : -bytes_[image];
    kept[image] = !kept[image];
    return score;
  }

  bool within(const Demand& demand, const Set& kept, double slack) const {
    const auto got = served(demand, kept);
    return got.choice && acceptable(demand, *got.choice, slack);
  }

  bool within(const Set& kept, double slack) const {
    return std::all_of(demands_.begin(), demands_.end(),
                       [&](const auto& demand) { return demand.choices.empty() || within(demand, kept, slack); });
  }

  bool within_where(std::size_t image, const Set& kept, double slack) const {
    return std::all_of(touched_[image].begin(), touched_[image].end(), [&](auto d) { return within(demands_[d], kept, slack); });
  }

  static bool acceptable(const Demand& demand, std::size_t choice, double slack) {
    if (choice == 0) return true;
    if (!demand.choices.front().cost) return false;
    double best = std::numeric_limits<double>::infinity();
    for (const auto& each : demand.choices) best = std::min(best, each.cost.value_or(best));
    return demand.choices[choice].cost && *demand.choices[choice].cost <= best * (1 + slack);
  }

  std::span<const std::int64_t> bytes_;
  std::span<const Demand> demands_;

 private:
  static std::optional<double> regret(const Demand& demand, std::size_t choice) {
    if (choice == 0) return 0.0;
    const auto &first = demand.choices.front().cost, &got = demand.choices[choice].cost;
    return first && got ? std::optional(*got - *first) : std::nullopt;
  }

  void add(Score& score, const Demand& demand, const Set& kept, double sign) const {
    const auto got = served(demand, kept);
    if (!got.choice)
      score.unserved += sign * demand.weight;
    else if (!got.regret)
      score.unknown += sign * demand.weight;
    else
      score.regret += sign * demand.weight * *got.regret;
  }

  std::vector<std::vector<std::size_t>> touched_;  // demands by image
  std::vector<std::size_t> useful_;
};

// Every set of the useful images, in the order of a binary counter.
inline void for_each_set(const Problem& problem, const std::function<void(const Set&)>& visit) {
  const auto& useful = problem.useful();
  Set kept(problem.bytes_.size());
  for (std::size_t bits = 0; bits < std::size_t{1} << useful.size(); ++bits) {
    for (std::size_t i = 0; i < useful.size(); ++i) kept[useful[i]] = bits >> i & 1;
    visit(kept);
  }
}

// How much better `after` is than `before` for each byte, as a score of gains (more is better).
inline Score gain_a_byte(const Score& before, const Score& after) {
  const auto size = static_cast<double>(std::max<std::int64_t>(std::abs(after.bytes - before.bytes), 1));
  return {(before.unserved - after.unserved) / size, (before.unknown - after.unknown) / size, (before.regret - after.regret) / size, 0};
}

// Puts in what gains most for its bytes, as long as something gains and fits.
inline void fill(const Problem& problem, Set& kept, Score& score, std::int64_t limit) {
  for (;;) {
    std::optional<std::size_t> best;
    Score best_gain, best_score;
    for (const auto i : problem.useful()) {
      if (kept[i] || score.bytes + problem.bytes_[i] > limit) continue;
      const auto after = problem.flipped(score, kept, i);
      const auto gain = gain_a_byte(score, after);
      if (!(Score{} < gain) || (best && !(best_gain < gain))) continue;
      best = i, best_gain = gain, best_score = after;
    }
    if (!best) return;
    kept[*best] = true;
    score = best_score;
  }
}

// Takes out what costs least for its bytes until the rest fits.
inline void shrink(const Problem& problem, Set& kept, Score& score, std::int64_t limit) {
  while (score.bytes > limit) {
    std::optional<std::size_t> best;
    Score best_gain, best_score;
    for (const auto i : problem.useful()) {
      if (!kept[i]) continue;
      const auto after = problem.flipped(score, kept, i);
      const auto gain = gain_a_byte(score, after);
      if (best && !(best_gain < gain)) continue;
      best = i, best_gain = gain, best_score = after;
    }
    if (!best) return;
    kept[*best] = false;
    score = best_score;
  }
}

// One image out or in, room made, and whatever gains put in the room that is left: as long as that is better.
inline void exchange(const Problem& problem, Set& kept, Score& score, std::int64_t limit) {
  for (bool better = true; better;) {
    better = false;
    for (const auto i : problem.useful()) {
      Set changed = kept;
      auto changed_score = problem.flipped(score, changed, i);
      changed[i] = !changed[i];
      shrink(problem, changed, changed_score, limit);
      fill(problem, changed, changed_score, limit);
      changed_score = problem.score(changed);  // sums of differences drift
      if (!(changed_score < score)) continue;
      kept = std::move(changed);
      score = changed_score;
      better = true;
    }
  }
}

inline Set all_useful(const Problem& problem) {
  Set kept(problem.bytes_.size());
  for (const auto i : problem.useful()) kept[i] = true;
  return kept;
}

// ---- the smallest set within a slowdown ----

// Puts in, while a demand is not within: the image that brings most demands within for its bytes.
inline void cover(const Problem& problem, Set& kept, double slack) {
  for (;;) {
    std::optional<std::size_t> best;
    double best_rate = 0;
    for (const auto i : problem.useful()) {
      if (kept[i]) continue;
      double gained = 0;
      kept[i] = true;
      for (const auto& demand : problem.demands_) gained += !demand.choices.empty() && problem.within(demand, kept, slack);
      kept[i] = false;
      for (const auto& demand : problem.demands_) gained -= !demand.choices.empty() && problem.within(demand, kept, slack);
      const double rate = gained / static_cast<double>(std::max<std::int64_t>(problem.bytes_[i], 1));
      if (rate > best_rate) best = i, best_rate = rate;
    }
    if (!best) break;
    kept[*best] = true;
  }
  for (const auto& demand : problem.demands_)  // the first choice is taken before all others, so it mends whatever is left
    if (!demand.choices.empty() && !problem.within(demand, kept, slack)) kept[demand.choices.front().image] = true;
}

// Takes out what is not needed, the largest first.
inline void thin(const Problem& problem, Set& kept, double slack) {
  auto order = problem.useful();
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return problem.bytes_[a] > problem.bytes_[b]; });
  for (const auto i : order) {
    if (!kept[i]) continue;
    kept[i] = false;
    if (!problem.within_where(i, kept, slack)) kept[i] = true;
  }
}

// With all of them every demand is within.
inline Set first_choices(const Problem& problem) {
  Set kept(problem.bytes_.size());
  for (const auto& demand : problem.demands_)
    if (!demand.choices.empty()) kept[demand.choices.front().image] = true;
  return kept;
}

inline Portfolio least_regret(std::span<const std::int64_t> bytes, std::span<const Demand> demands, std::int64_t limit) {
  const Problem problem(bytes, demands);
  Set best(bytes.size());
  auto best_score = problem.score(best);
  const auto offer = [&](const Set& kept) {
    const auto score = problem.score(kept);
    if (score.bytes > limit || !(score < best_score)) return;
    best = kept;
    best_score = score;
  };
  const bool exact = problem.useful().size() <= most_exact;
  if (exact) {
    for_each_set(problem, offer);
  } else {
    for (const bool from_all : {true, false}) {
      Set kept = from_all ? all_useful(problem) : Set(bytes.size());
      auto score = problem.score(kept);
      if (from_all) shrink(problem, kept, score, limit);
      fill(problem, kept, score, limit);
      score = problem.score(kept);
      exchange(problem, kept, score, limit);
      offer(kept);
    }
  }
  auto portfolio = judged(bytes, demands, std::move(best));
  portfolio.exact = exact;
  return portfolio;
}

inline Portfolio smallest_within(std::span<const std::int64_t> bytes, std::span<const Demand> demands, double slack) {
  const Problem problem(bytes, demands);
  std::optional<Set> best;
  std::int64_t best_bytes = 0;
  const auto offer = [&](const Set& kept) {
    std::int64_t size = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) size += kept[i] ? bytes[i] : 0;
    if ((best && size >= best_bytes) || !problem.within(kept, slack)) return;
    best = kept;
    best_bytes = size;
  };
  const bool exact = problem.useful().size() <= most_exact;
  if (exact) {
    for_each_set(problem, offer);
  } else {
    Set covered(bytes.size()), won = first_choices(problem);
    cover(problem, covered, slack);
    for (auto* kept : {&covered, &won}) {
      thin(problem, *kept, slack);
      offer(*kept);
    }
  }
  auto portfolio = judged(bytes, demands, best.value_or(Set(bytes.size())));
  portfolio.exact = exact;
  return portfolio;
}

}  // namespace ejk::spec::plain
