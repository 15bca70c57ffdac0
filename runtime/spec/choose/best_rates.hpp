// The image that changes most for its bytes, of those that fit: a tournament over the images by size.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace ejk::spec {

// Gains for each byte, the first field before the others; more is better.
struct Rate {
  double unserved = 0, unknown = 0, regret = 0;
  friend bool operator<(const Rate& a, const Rate& b) {
    return std::tie(a.unserved, a.unknown, a.regret) < std::tie(b.unserved, b.unknown, b.regret);
  }
};

class BestRates {
 public:
  explicit BestRates(std::span<const std::int64_t> bytes) : order_(bytes.size()), place_(bytes.size()), rates_(bytes.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return bytes[a] < bytes[b]; });
    for (std::size_t at = 0; at < order_.size(); ++at) place_[order_[at]] = at;
    for (const auto image : order_) sorted_bytes_.push_back(bytes[image]);
    while (leaves_ < order_.size()) leaves_ *= 2;
    winners_.assign(2 * leaves_, none);
  }

  const Rate& rate(std::size_t image) const { return rates_[image]; }
  void put(std::size_t image, const Rate& rate) {
    rates_[image] = rate;
    set(image, image);
  }
  void remove(std::size_t image) { set(image, none); }

  // Of the images that were put here and have at most so many bytes the one of the highest rate; of equals the one with the lowest index.
  std::optional<std::size_t> best(std::int64_t most_bytes) const {
    const auto fitting = std::upper_bound(sorted_bytes_.begin(), sorted_bytes_.end(), most_bytes) - sorted_bytes_.begin();
    auto found = none;
    for (std::size_t low = leaves_, high = leaves_ + static_cast<std::size_t>(fitting); low < high; low /= 2, high /= 2) {
      if (low % 2) found = better(found, winners_[low++]);
      if (high % 2) found = better(found, winners_[--high]);
    }
    return found == none ? std::nullopt : std::optional(found);
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  std::size_t better(std::size_t a, std::size_t b) const {
    if (a == none || b == none) return a == none ? b : a;
    if (rates_[a] < rates_[b]) return b;
    return rates_[b] < rates_[a] ? a : std::min(a, b);
  }
  void set(std::size_t image, std::size_t winner) {
    auto at = leaves_ + place_[image];
    for (winners_[at] = winner; (at /= 2) > 0;) winners_[at] = better(winners_[2 * at], winners_[2 * at + 1]);
  }

  std::vector<std::size_t> order_, place_;  // images by size, and where each stands
  std::vector<std::int64_t> sorted_bytes_;
  std::vector<Rate> rates_;
  std::size_t leaves_ = 1;
  std::vector<std::size_t> winners_;  // a binary tree: node i is of 2i and 2i + 1
};

}  // namespace ejk::spec
