// Configs by nearness, candidates by rank.
#include "spec/choose/fallbacks.hpp"

#include <algorithm>

namespace ejk::spec {

std::vector<Config> nearest_first(std::vector<Config> space, const Config& wanted) {
  const auto distance = [&](const Config& config) {
    std::size_t differing = 0;
    for (std::size_t i = 0; i < config.size() && i < wanted.size(); ++i) differing += config[i].second != wanted[i].second;
    return differing;
  };
  std::erase_if(space, [&](const auto& config) { return config == wanted; });
  std::stable_sort(space.begin(), space.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return space;
}

std::vector<PlacedConfig> fallbacks(std::span<const std::pair<const Variant*, const Arch*>> candidates, const PlacedConfig& chosen,
                                    const Binding& binding) {
  return fallbacks(candidates, chosen, binding,
                   [&](const Variant& variant, const Arch& arch) { return config_space(variant, arch, binding); });
}

std::vector<PlacedConfig> fallbacks(std::span<const std::pair<const Variant*, const Arch*>> candidates, const PlacedConfig& chosen,
                                    const Binding& binding, const ConfigsOf& configs_of) {
  std::vector<PlacedConfig> order;
  const auto add_near = [&](const Variant* variant, const Arch* arch, const Config& wanted) {
    for (auto& config : nearest_first(configs_of(*variant, *arch), wanted)) order.push_back({variant, arch, std::move(config)});
  };
  add_near(chosen.variant, chosen.arch, chosen.config);
  for (const auto& [variant, arch] : candidates) {
    if (variant == chosen.variant && arch->full_name() == chosen.arch->full_name()) continue;
    const auto config = heuristic_config(*variant, *arch, binding);
    if (!config) continue;
    order.push_back({variant, arch, *config});
    add_near(variant, arch, *config);
  }
  return order;
}

}  // namespace ejk::spec
