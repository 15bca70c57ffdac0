// A variant's config space in the order of its images' ids, and which part of it a pattern over ids allows.
#pragma once
#include <string>
#include <vector>

#include "generator/glob.hpp"
#include "spec/choose/config_points.hpp"

namespace ejk::generator {

struct IdAxes {
  std::vector<spec::ConfigAxis> axes;
  std::vector<std::vector<std::string>> texts;  // what each point adds to the id, with the '_' before the next part
  std::vector<GlobPlaces> needed;               // before each axis, and behind the last one: the pattern's places that lead to a match
};

// Axes whose points, the last axis fastest, come in the ascending order of their texts: parameters with sorted values. Where one value's
// text begins another's ("a_" and "a_b_"), what stands behind decides, so the parameter shares an axis with the next one. An empty pattern
// allows all ids.
IdAxes id_axes(const spec::Variant& variant, const std::string& pattern);

// The pattern's places on the way through the axes: configs whose ids it does not allow are not even looked at.
class IdFilter {
 public:
  // prefix: of the ids, up to their config.
  IdFilter(const std::string& pattern, const std::string& prefix, const IdAxes& axes);
  bool allows_any() const { return pattern_.empty() || common(reached_.front(), axes_.needed.front()); }
  bool allows(std::size_t axis, std::size_t point);  // a ConfigPoints::Filter

 private:
  const std::string& pattern_;
  const IdAxes& axes_;
  std::vector<GlobPlaces> reached_;  // before each axis, and behind the last one
};

}  // namespace ejk::generator
