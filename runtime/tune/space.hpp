// The configs of a call in the order worth trying: near the best one known first.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ejk/kernel.hpp"

namespace ejk {

class ConfigOrder {
 public:
  explicit ConfigOrder(const std::vector<Config>& space);
  // How far two configs are apart: steps in each parameter's sorted values, at most two a parameter; another arch counts six, another
  // variant eight: the best one's own neighbourhood comes first.
  double distance(const Config& a, const Config& b) const;

 private:
  double steps(const std::string& parameter, const Value& a, const Value& b) const;
  std::map<std::string, std::vector<Value>> values_;  // by parameter, sorted
};

}  // namespace ejk
