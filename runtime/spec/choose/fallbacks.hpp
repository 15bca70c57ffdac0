// What serves a call if the binary of the config it chose cannot be had.
#pragma once
#include <functional>
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

// The same of some configs alone: those that `configs_of` gives of a variant and arch, valid ones in the order of the space. The
// heuristics' configs are always among them.
using ConfigsOf = std::function<std::vector<Config>(const Variant& variant, const Arch& arch)>;
std::vector<PlacedConfig> fallbacks(std::span<const std::pair<const Variant*, const Arch*>> candidates, const PlacedConfig& chosen,
                                    const Binding& binding, const ConfigsOf& configs_of);

}  // namespace ejk::spec
