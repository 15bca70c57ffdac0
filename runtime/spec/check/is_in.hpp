// Whether a list has a name.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "spec/expression/same_name.hpp"

namespace ejk::spec {

inline bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& each) { return same_name(each, name); });
}

}  // namespace ejk::spec
