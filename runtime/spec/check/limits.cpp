// Judging resources.
#include "spec/check/limits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ejk::spec {

const std::vector<std::string>& names_of_resources() {
  static const std::vector<std::string> names = {"registers", "spill_bytes", "stack_bytes", "shared_bytes", "code_bytes",
                                                 "vgprs",     "agprs",       "sgprs",       "wave_size",    "performance_losses"};
  return names;
}

std::string above_limits(const Resources& limits, const Resources& found) {
  const auto declared = [&](const std::string& name) {
    return std::any_of(limits.begin(), limits.end(), [&](const auto& limit) { return limit.first == name; });
  };
  Resources judged = limits;
  if (!declared("performance_losses")) judged.emplace_back("performance_losses", 0);
  std::string text;
  for (const auto& [name, limit] : judged)
    for (const auto& [resource, value] : found)
      if (resource == name && value > limit)
        text += fmt::format("{}{} is {}, the limit is {}", text.empty() ? "" : "; ", name, value, limit);
  return text;
}

}  // namespace ejk::spec
