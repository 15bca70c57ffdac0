// Comparing names, of which specs ask millions of times.
#pragma once
#include <string_view>

namespace ejk::spec {

// As ==. Names of one length mostly differ in the first or the last letter: no call of memcmp then.
inline bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.empty() || (a.front() == b.front() && a.back() == b.back() && a == b));
}

}  // namespace ejk::spec
