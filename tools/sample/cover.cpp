// The greedy cover. What an item adds only shrinks as others are taken, so an old count that is still the largest need not be made again.
#include "sample/cover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "reference/random.hpp"

namespace ejk::tools {
namespace {

struct Candidate {
  bool built;
  std::size_t gain;    // features that it added when it was last counted
  std::uint64_t rank;  // the seed's choice among equals
  std::size_t index;
  bool operator<(const Candidate& other) const {
    return std::tie(built, gain, rank, index) < std::tie(other.built, other.gain, other.rank, other.index);
  }
};

// Features as numbers.
std::vector<std::vector<std::size_t>> numbered(std::span<const CoverItem> items, std::size_t& count) {
  std::map<std::string, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> result;
  for (const auto& item : items) {
    auto& own = result.emplace_back();
    for (const auto& feature : item.features) own.push_back(numbers.try_emplace(feature, numbers.size()).first->second);
  }
  count = numbers.size();
  return result;
}

}  // namespace

bool pair_drawn(std::uint64_t seed, const std::string& name) { return (reference::Rng::stream(0, name).next() + seed) % pair_days == 0; }

bool arch_drawn(std::uint64_t seed, const std::string& variant, const std::string& arch) {
  const bool compiled_slowly = arch.starts_with("cuda:") || arch.starts_with("hip:");
  return !compiled_slowly || (reference::Rng::stream(0, variant + arch).next() + seed) % arch_days == 0;
}

CoverItem brief_item(const std::string& id, const std::string& kernel, const std::string& variant, const std::string& arch) {
  return {id, {fmt::format("{} {} {}", kernel, variant, arch)}};
}

CoverItem cover_item(const std::string& id, const std::string& kernel, const std::string& variant, const std::string& arch,
                     std::span<const std::pair<std::string, spec::Value>> specialisation, const spec::Config& config, std::uint64_t seed) {
  const auto of_variant = fmt::format("{} {} ", kernel, variant);
  CoverItem item{id, {of_variant, arch}};
  if (arch_drawn(seed, of_variant, arch)) item.features.push_back(of_variant + arch);
  std::vector<std::string> values;
  for (const auto& [name, value] : specialisation) values.push_back(fmt::format("{}={}", name, spec::to_text(value)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    item.features.push_back(fmt::format("{}with {}", of_variant, values[i]));
    for (std::size_t j = 0; j < i; ++j)
      if (auto pair = fmt::format("{}with {} {}", of_variant, values[j], values[i]); pair_drawn(seed, pair))
        item.features.push_back(std::move(pair));
  }
  for (const auto& [name, value] : config) item.features.push_back(fmt::format("{}config {}={}", of_variant, name, spec::to_text(value)));
  return item;
}

std::vector<std::size_t> covering_sample(std::span<const CoverItem> items, std::uint64_t seed) {
  std::size_t count = 0;
  const auto features = numbered(items, count);
  std::priority_queue<Candidate> queue;
  for (std::size_t i = 0; i < items.size(); ++i)
    queue.push({items[i].built, features[i].size(), reference::Rng::stream(seed, items[i].id).next(), i});
  std::vector<bool> met(count, false);
  std::vector<std::size_t> chosen;
  while (!queue.empty()) {
    auto best = queue.top();
    queue.pop();
    const auto& own = features[best.index];
    const auto gain = static_cast<std::size_t>(std::count_if(own.begin(), own.end(), [&](auto feature) { return !met[feature]; }));
    if (gain == 0) continue;
    if (gain < best.gain) {
      best.gain = gain;
      queue.push(best);
      continue;
    }
    chosen.push_back(best.index);
    for (const auto feature : own) met[feature] = true;
  }
  std::ranges::sort(chosen);
  return chosen;
}

std::size_t drawn(std::uint64_t seed, const std::string& name, std::size_t count) {
  return count == 0 ? 0 : reference::Rng::stream(seed, name).next() % count;
}

}  // namespace ejk::tools
