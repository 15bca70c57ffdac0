// Each demand knows its first two kept choices: all that a flip changes follows from them.
#include "spec/choose/kept_set.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ejk::spec {
namespace {

// A power of two by which values become whole numbers, as large as their sum allows: sums and differences of sums stay below 2^62.
class Unit {
 public:
  explicit Unit(double sum) : shift_(sum > 0 && std::isfinite(sum) ? 59 - std::ilogb(sum) : 0) {}
  std::int64_t of(double value) const { return std::llround(std::ldexp(value, shift_)); }

 private:
  int shift_;
};

std::optional<double> regret_of(const Demand& demand, std::size_t choice) {
  if (choice == 0) return 0.0;
  const auto &first = demand.choices.front().cost, &got = demand.choices[choice].cost;
  return first && got && std::isfinite(*got - *first) ? std::optional(*got - *first) : std::nullopt;
}

// Where each image of the demand stands first.
std::vector<std::size_t> first_places(const Demand& demand) {
  std::vector<std::size_t> places(demand.choices.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  const auto image = [&](std::size_t place) { return demand.choices[place].image; };
  std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return image(a) < image(b); });
  places.erase(std::unique(places.begin(), places.end(), [&](auto a, auto b) { return image(a) == image(b); }), places.end());
  std::sort(places.begin(), places.end());
  return places;
}

template <class CostOf>
PricedDemand priced(const Demand& demand, const Amount& unserved, CostOf cost_of) {
  PricedDemand result;
  for (const auto place : first_places(demand)) {
    result.images.push_back(demand.choices[place].image);
    result.costs.push_back(cost_of(place));
  }
  result.costs.push_back(unserved);
  return result;
}

bool acceptable(const Demand& demand, std::size_t choice, double best, double slack) {
  if (choice == 0) return true;
  const auto& cost = demand.choices[choice].cost;
  return demand.choices.front().cost && cost && *cost <= best * (1 + slack);
}

}  // namespace

std::vector<PricedDemand> priced_by_regret(std::span<const Demand> demands) {
  double weights = 0, regrets = 0;
  for (const auto& demand : demands) {
    double largest = 0;
    for (std::size_t i = 0; i < demand.choices.size(); ++i) largest = std::max(largest, std::abs(regret_of(demand, i).value_or(0)));
    weights += demand.weight;
    regrets += demand.weight * largest;
  }
  const Unit weight(weights), regret(regrets);
  std::vector<PricedDemand> result;
  for (const auto& demand : demands)
    result.push_back(priced(demand, {weight.of(demand.weight), 0, 0}, [&](std::size_t choice) -> Amount {
      const auto each = regret_of(demand, choice);
      return each ? Amount{0, 0, regret.of(demand.weight * *each)} : Amount{0, weight.of(demand.weight), 0};
    }));
  return result;
}

std::vector<PricedDemand> priced_by_slack(std::span<const Demand> demands, double slack) {
  std::vector<PricedDemand> result;
  for (const auto& demand : demands) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& each : demand.choices) best = std::min(best, each.cost.value_or(best));
    result.push_back(priced(demand, {0, 0, demand.choices.empty() ? 0 : 1}, [&](std::size_t choice) -> Amount {
      return {0, 0, acceptable(demand, choice, best, slack) ? 0 : 1};
    }));
  }
  return result;
}

KeptSet::KeptSet(std::span<const std::int64_t> bytes, std::vector<PricedDemand> demands)
    : bytes_(bytes.begin(), bytes.end()),
      demands_(std::move(demands)),
      places_(bytes.size()),
      kept_(bytes.size()),
      changes_(bytes.size()),
      is_changed_(bytes.size()) {
  for (std::size_t d = 0; d < demands_.size(); ++d) {
    const auto& demand = demands_[d];
    const auto none = demand.images.size();
    taken_.push_back({none, none});
    cost_ += demand.costs[none];
    for (std::size_t choice = 0; choice < none; ++choice) {
      places_[demand.images[choice]].push_back({d, choice});
      changes_[demand.images[choice]] += demand.costs[choice] - demand.costs[none];
    }
  }
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (!places_[i].empty()) useful_.push_back(i);
}

Amount KeptSet::cost_around(std::size_t image) const {
  Amount cost;
  for (const auto& place : places_[image]) cost += demands_[place.demand].costs[taken_[place.demand].first];
  return cost;
}

std::size_t KeptSet::next_kept(const PricedDemand& demand, std::size_t choice) const {
  while (choice < demand.images.size() && !keeps(demand, choice)) ++choice;
  return std::min(choice, demand.images.size());
}

KeptSet::Taken KeptSet::taken_after_flip(const Place& place) const {
  const auto& demand = demands_[place.demand];
  const auto [first, second] = taken_[place.demand];
  if (keeps(demand, place.choice)) {
    if (place.choice < first) return {place.choice, first};
    return {first, std::min(second, place.choice)};
  }
  if (place.choice == first) return {second, next_kept(demand, second + 1)};
  if (place.choice == second) return {first, next_kept(demand, second + 1)};
  return {first, second};
}

void KeptSet::add(std::size_t image, const Amount& amount) {
  if (amount == Amount{}) return;
  changes_[image] += amount;
  if (is_changed_[image]) return;
  is_changed_[image] = true;
  changed_.push_back(image);
}

// An image that is not kept changes a demand's cost if it stands before the first; of the kept ones only the first does, by the second.
void KeptSet::settle(const Place& place, Taken now) {
  const auto& [images, costs] = demands_[place.demand];
  const auto was = taken_[place.demand];
  if (was.first == now.first) {
    if (was.second != now.second && now.first < images.size()) add(images[now.first], costs[now.second] - costs[was.second]);
  } else {
    const auto low = std::min(was.first, now.first), high = std::max(was.first, now.first);
    if (const auto less = costs[was.first] - costs[now.first]; less != Amount{})
      for (std::size_t choice = 0; choice < low; ++choice) add(images[choice], less);
    const bool put_in = now.first < was.first;
    const Amount& other = costs[high];
    // At `low` stands the flipped image: before, its flip led to `other` one way, now the other way.
    add(images[low], put_in ? (other - costs[low]) - (costs[low] - other) : (costs[low] - other) - (other - costs[low]));
    for (std::size_t choice = low + 1; choice < high; ++choice) add(images[choice], put_in ? other - costs[choice] : costs[choice] - other);
    // At `high` stands what is first without it, and matters by the second as long as it is the first.
    if (high < images.size()) {
      const auto beyond = put_in ? was.second : now.second;
      add(images[high], put_in ? other - costs[beyond] : costs[beyond] - other);
    }
    cost_ += costs[now.first] - costs[was.first];
  }
  taken_[place.demand] = now;
}

void KeptSet::flip(std::size_t image) {
  for (const auto each : changed_) is_changed_[each] = false;
  changed_.assign(1, image);
  is_changed_[image] = true;
  kept_[image] = !kept_[image];
  total_bytes_ += kept_[image] ? bytes_[image] : -bytes_[image];
  for (const auto& place : places_[image]) settle(place, taken_after_flip(place));
}

}  // namespace ejk::spec
