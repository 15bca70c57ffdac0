// Numbers of an arch and of a compiled image by name, 0 where they are not known.
#pragma once
#include <algorithm>
#include <string_view>

#include "spec/check/limits.hpp"
#include "spec/model.hpp"

namespace ejk {

inline std::int64_t property_of(const spec::Arch& arch, const char* name) {
  const auto found = arch.properties.find(name);
  const auto* value = found == arch.properties.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value ? *value : 0;
}

inline std::int64_t resource_of(const spec::Resources& resources, std::string_view name) {
  const auto found = std::find_if(resources.begin(), resources.end(), [&](const auto& one) { return one.first == name; });
  return found == resources.end() ? 0 : found->second;
}

}  // namespace ejk
