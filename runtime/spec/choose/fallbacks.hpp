// What serves a call if the binary of the config it chose cannot be had.
#pragma once
#include <span>
#include <vector>

#include "spec/render/image.hpp"

namespace ejk::spec {

struct PlacedConfig {
  const Variant* variant = nullptr;
  const Arch* arch = nullptr;
  Config config;
};

// The configs of the space but `wanted`, those that differ from it in the fewest parameters first.
std::vector<Config> nearest_first(std::vector<Config> space, const Config& wanted);

// In the order in which a call tries them: the other configs of the chosen variant and arch, the nearest first; then for each other
// candidate (variants by priority, the most specific arch first) its heuristic's config and those near it. `chosen` itself is not among
// them.
std::vector<PlacedConfig> fallbacks(std::span<const std::pair<const Variant*, const Arch*>> candidates, const PlacedConfig& chosen,
                                    const Binding& binding);

}  // namespace ejk::spec
