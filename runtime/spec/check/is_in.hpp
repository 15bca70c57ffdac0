// Whether a list has a name.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace ejk::spec {

inline bool is_in(const std::vector<std::string>& names, const std::string& name) {
  // A process's first call asks this ten thousand times: the length and the last letter tell most names apart.
  return std::any_of(names.begin(), names.end(), [&](const std::string& each) {
    return each.size() == name.size() && (name.empty() || (each.back() == name.back() && each == name));
  });
}

}  // namespace ejk::spec
