// Portfolios: a count of all sets where they are few, else greedy steps and exchanges. A step costs what it changes, not what there is.
#include "spec/choose/portfolio.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "spec/choose/best_rates.hpp"
#include "spec/choose/kept_set.hpp"

namespace ejk::spec {
namespace {

constexpr std::size_t most_exact = 16;  // images: 65,536 sets

// Every set of the useful images, in the order of a binary counter; the set is empty again afterwards.
template <class Visit>
void for_each_set(KeptSet& set, Visit visit) {
  const auto& useful = set.useful();
  for (std::size_t bits = 0;; ++bits) {
    visit();
    std::size_t i = 0;
    for (; i < useful.size() && (bits >> i & 1); ++i) set.flip(useful[i]);
    if (i == useful.size()) return;
    set.flip(useful[i]);
  }
}

// Greedy steps over a set.
class Search {
 public:
  Search(KeptSet& set, std::span<const std::int64_t> bytes) : set_(set), in_(bytes), out_(bytes) {
    for (const auto i : set_.useful()) rate(i);
  }

  const KeptSet& set() const { return set_; }

  void flip(std::size_t image) {
    set_.flip(image);
    for (const auto each : set_.changed()) rate(each);
  }

  // Puts in what gains most for its bytes, as long as something gains and fits.
  void fill(std::int64_t limit) {
    for (;;) {
      const auto best = in_.best(limit - set_.bytes());
      if (!best || !(Rate{} < in_.rate(*best))) return;
      log(*best);
    }
  }

  // Takes out what costs least for its bytes until the rest fits.
  void shrink(std::int64_t limit) {
    while (set_.bytes() > limit) {
      const auto best = out_.best(std::numeric_limits<std::int64_t>::max());
      if (!best) return;
      log(*best);
    }
  }

  // One image out or in, room made, and whatever gains put in the room that is left: as long as that is better.
  void exchange(std::int64_t limit) {
    for (bool better = true; better;) {
      better = false;
      for (const auto i : set_.useful()) better |= improved(i, limit);
    }
  }

 private:
  void log(std::size_t image) {
    flip(image);
    log_.push_back(image);
  }

  bool improved(std::size_t image, std::int64_t limit) {
    const auto before = std::pair(set_.cost(), set_.bytes());
    log_.clear();
    log(image);
    shrink(limit);
    fill(limit);
    if (std::pair(set_.cost(), set_.bytes()) < before) return true;
    for (auto each = log_.rbegin(); each != log_.rend(); ++each) flip(*each);
    return false;
  }

  void rate(std::size_t image) {
    const auto size = static_cast<double>(std::max<std::int64_t>(set_.bytes_of(image), 1));
    const auto gain = -set_.change(image);
    const Rate rate{static_cast<double>(gain.unserved) / size, static_cast<double>(gain.unknown) / size,
                    static_cast<double>(gain.regret) / size};
    const bool kept = set_.kept()[image];
    (kept ? out_ : in_).put(image, rate);
    (kept ? in_ : out_).remove(image);
  }

  KeptSet& set_;
  BestRates in_, out_;  // what could be put in, and taken out
  std::vector<std::size_t> log_;
};

// ---- the smallest set within a slowdown ----

void put_in(KeptSet& set, std::size_t image) {
  if (!set.kept()[image]) set.flip(image);
}

// Puts in, while a demand is not within: the image that brings most demands within for its bytes.
void cover(KeptSet& set, std::span<const std::int64_t> bytes, std::span<const Demand> demands, double slack) {
  Search(set, bytes).fill(std::numeric_limits<std::int64_t>::max());
  // The first choice is taken before all others, so it mends whatever is left.
  const auto within = [&](const PricedDemand& demand) {
    for (std::size_t i = 0; i < demand.images.size(); ++i)
      if (set.kept()[demand.images[i]]) return demand.costs[i] == Amount{};
    return demand.images.empty();
  };
  for (const auto& demand : priced_by_slack(demands, slack))
    if (!within(demand)) put_in(set, demand.images.front());
}

// Takes out what is not needed, the largest first.
void thin(KeptSet& set) {
  auto order = set.useful();
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return set.bytes_of(a) > set.bytes_of(b); });
  for (const auto i : order)
    if (set.kept()[i] && set.cost_around(i) + set.change(i) == Amount{}) set.flip(i);
}

}  // namespace

Portfolio judged(std::span<const std::int64_t> bytes, std::span<const Demand> demands, std::vector<bool> kept) {
  Portfolio portfolio;
  for (std::size_t i = 0; i < bytes.size(); ++i) portfolio.bytes += kept[i] ? bytes[i] : 0;
  for (const auto& demand : demands) {
    Served served;
    const auto& choices = demand.choices;
    const auto got = std::find_if(choices.begin(), choices.end(), [&](const auto& choice) { return kept[choice.image]; });
    if (got != choices.end()) served.choice = static_cast<std::size_t>(got - choices.begin());
    if (served.choice == 0u)
      served.regret = 0.0;
    else if (served.choice && got->cost && choices.front().cost)
      served.regret = *got->cost - *choices.front().cost;
    portfolio.served.push_back(served);
  }
  portfolio.kept = std::move(kept);
  return portfolio;
}

Portfolio least_regret(std::span<const std::int64_t> bytes, std::span<const Demand> demands, std::int64_t limit) {
  KeptSet set(bytes, priced_by_regret(demands));
  std::vector<bool> best = set.kept();
  auto best_score = std::pair(set.cost(), set.bytes());
  const auto offer = [&] {
    const auto score = std::pair(set.cost(), set.bytes());
    if (set.bytes() > limit || !(score < best_score)) return;
    best = set.kept();
    best_score = score;
  };
  const bool exact = set.useful().size() <= most_exact;
  if (exact) {
    for_each_set(set, offer);
  } else {
    for (const bool from_all : {true, false}) {
      for (const auto i : set.useful())
        if (set.kept()[i] != from_all) set.flip(i);
      Search search(set, bytes);
      if (from_all) search.shrink(limit);
      search.fill(limit);
      search.exchange(limit);
      offer();
    }
  }
  auto portfolio = judged(bytes, demands, std::move(best));
  portfolio.exact = exact;
  return portfolio;
}

Portfolio smallest_within(std::span<const std::int64_t> bytes, std::span<const Demand> demands, double slack) {
  std::optional<std::vector<bool>> best;
  std::int64_t best_bytes = 0;
  const auto offer = [&](const KeptSet& set) {
    if ((best && set.bytes() >= best_bytes) || set.cost() != Amount{}) return;
    best = set.kept();
    best_bytes = set.bytes();
  };
  KeptSet covered(bytes, priced_by_slack(demands, slack));
  const bool exact = covered.useful().size() <= most_exact;
  if (exact) {
    for_each_set(covered, [&] { offer(covered); });
  } else {
    KeptSet won = covered;  // the first choices: with all of them every demand is within
    for (const auto& demand : demands)
      if (!demand.choices.empty()) put_in(won, demand.choices.front().image);
    cover(covered, bytes, demands, slack);
    for (auto* set : {&covered, &won}) {
      thin(*set);
      offer(*set);
    }
  }
  auto portfolio = judged(bytes, demands, best.value_or(std::vector<bool>(bytes.size())));
  portfolio.exact = exact;
  return portfolio;
}

}  // namespace ejk::spec
