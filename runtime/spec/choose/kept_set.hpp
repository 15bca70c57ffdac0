// A set of images, what the calls cost with it, and what each image put in or taken out would change: kept up to date flip by flip.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/choose/portfolio.hpp"

namespace ejk::spec {

// What calls cost, the first field before the others. Whole numbers of a small unit: a sum of them has no order and no rounding, and what
// is put in and taken out again leaves no trace.
struct Amount {
  std::int64_t unserved = 0, unknown = 0, regret = 0;
  Amount& operator+=(const Amount& other) {
    unserved += other.unserved, unknown += other.unknown, regret += other.regret;
    return *this;
  }
  Amount operator-() const { return {-unserved, -unknown, -regret}; }
  friend Amount operator+(Amount a, const Amount& b) { return a += b; }
  friend Amount operator-(Amount a, const Amount& b) { return a += -b; }
  friend auto operator<=>(const Amount&, const Amount&) = default;
};

// A demand by what it costs: images in its order of choice, each once; costs has one more entry, of a demand that nothing serves.
struct PricedDemand {
  std::vector<std::size_t> images;
  std::vector<Amount> costs;
};

// The costs of least_regret, and those of smallest_within: regret 1 of a demand that is not within the slack.
std::vector<PricedDemand> priced_by_regret(std::span<const Demand> demands);
std::vector<PricedDemand> priced_by_slack(std::span<const Demand> demands, double slack);

class KeptSet {
 public:
  KeptSet(std::span<const std::int64_t> bytes, std::vector<PricedDemand> demands);  // of no images

  const std::vector<std::size_t>& useful() const { return useful_; }  // images that a demand names
  const std::vector<bool>& kept() const { return kept_; }
  const Amount& cost() const { return cost_; }
  std::int64_t bytes() const { return total_bytes_; }
  std::int64_t bytes_of(std::size_t image) const { return bytes_[image]; }

  // What a flip would add to the cost.
  const Amount& change(std::size_t image) const { return changes_[image]; }
  // What the demands that name the image cost now.
  Amount cost_around(std::size_t image) const;

  // Puts the image in, or takes it out. In time by the demands that name it and their choices before the one that is taken.
  void flip(std::size_t image);
  // The images whose change() is another one since the last flip, and that image itself.
  const std::vector<std::size_t>& changed() const { return changed_; }

 private:
  struct Place {
    std::size_t demand, choice;
  };
  struct Taken {
    std::size_t first, second;  // kept choices; the number of choices: none
  };
  bool keeps(const PricedDemand& demand, std::size_t choice) const { return kept_[demand.images[choice]]; }
  std::size_t next_kept(const PricedDemand& demand, std::size_t choice) const;
  Taken taken_after_flip(const Place& place) const;
  void settle(const Place& place, Taken now);
  void add(std::size_t image, const Amount& amount);

  std::vector<std::int64_t> bytes_;
  std::vector<PricedDemand> demands_;
  std::vector<std::vector<Place>> places_;  // by image
  std::vector<Taken> taken_;                // by demand
  std::vector<std::size_t> useful_;
  std::vector<bool> kept_;
  std::vector<Amount> changes_;
  Amount cost_;
  std::int64_t total_bytes_ = 0;
  std::vector<std::size_t> changed_;
  std::vector<bool> is_changed_;
};

}  // namespace ejk::spec
