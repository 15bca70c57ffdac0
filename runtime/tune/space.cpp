// Distances between configs.
#include "tune/space.hpp"

#include <algorithm>
#include <cmath>

namespace ejk {
namespace {

constexpr double most_steps = 2, another_arch = 6, another_variant = 8;

}  // namespace

ConfigOrder::ConfigOrder(const std::vector<Config>& space) {
  for (const auto& config : space)
    for (const auto& [name, value] : config.values) {
      auto& values = values_[name];
      const auto place = std::lower_bound(values.begin(), values.end(), value);
      if (place == values.end() || *place != value) values.insert(place, value);
    }
}

double ConfigOrder::steps(const std::string& parameter, const Value& a, const Value& b) const {
  if (a == b) return 0;
  const auto found = values_.find(parameter);
  if (found == values_.end()) return most_steps;
  const auto& values = found->second;
  const auto place = [&](const Value& value) { return std::lower_bound(values.begin(), values.end(), value) - values.begin(); };
  return std::min(most_steps, std::fabs(static_cast<double>(place(a) - place(b))));
}

double ConfigOrder::distance(const Config& a, const Config& b) const {
  double sum = (a.variant != b.variant ? another_variant : 0) + (a.arch != b.arch ? another_arch : 0);
  if (a.variant != b.variant) return sum;  // parameters of another variant mean something else
  for (const auto& [name, value] : a.values) {
    const auto other = b.values.find(name);
    sum += other == b.values.end() ? most_steps : steps(name, value, other->second);
  }
  return sum;
}

}  // namespace ejk
