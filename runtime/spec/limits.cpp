// Judging resources.
#include "spec/limits.hpp"

#include <fmt/format.h>

namespace ejk::spec {

const std::vector<std::string>& names_of_resources() {
  static const std::vector<std::string> names = {"registers", "spill_bytes", "stack_bytes", "shared_bytes", "code_bytes",
                                                 "vgprs",     "agprs",       "sgprs",       "wave_size"};
  return names;
}

std::string above_limits(const Resources& limits, const Resources& found) {
  std::string text;
  for (const auto& [name, limit] : limits)
    for (const auto& [resource, value] : found)
      if (resource == name && value > limit)
        text += fmt::format("{}{} is {}, the limit is {}", text.empty() ? "" : "; ", name, value, limit);
  return text;
}

}  // namespace ejk::spec
