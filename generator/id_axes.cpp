// Sorting a product by sorting its factors.
#include "generator/id_axes.hpp"

#include <algorithm>
#include <numeric>

#include "spec/render/image_id.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

struct Axis {
  ConfigAxis values;
  std::vector<std::string> texts;
};

void sort(Axis& axis) {
  std::vector<std::size_t> order(axis.texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return axis.texts[a] < axis.texts[b]; });
  Axis sorted{{axis.values.parameters, {}}, {}};
  for (const auto i : order) {
    sorted.values.points.push_back(std::move(axis.values.points[i]));
    sorted.texts.push_back(std::move(axis.texts[i]));
  }
  axis = std::move(sorted);
}

Axis axis_of(const Variant& variant, std::size_t parameter) {
  Axis axis{{{parameter}, {}}, {}};
  const bool last = parameter + 1 == variant.config.size();
  for (const Value& value : variant.config[parameter].values) {
    axis.values.points.push_back({value});
    axis.texts.push_back(config_part(variant.config[parameter], value) + (last ? "" : "_"));
  }
  sort(axis);
  return axis;
}

// Of sorted texts.
bool one_begins_another(const std::vector<std::string>& texts) {
  for (std::size_t i = 1; i < texts.size(); ++i)
    if (texts[i].starts_with(texts[i - 1])) return true;
  return false;
}

Axis product(const Axis& first, const Axis& second) {
  Axis axis{first.values, {}};
  axis.values.points.clear();
  const auto& more = second.values.parameters;
  axis.values.parameters.insert(axis.values.parameters.end(), more.begin(), more.end());
  for (std::size_t i = 0; i < first.texts.size(); ++i)
    for (std::size_t k = 0; k < second.texts.size(); ++k) {
      auto point = first.values.points[i];
      point.insert(point.end(), second.values.points[k].begin(), second.values.points[k].end());
      axis.values.points.push_back(std::move(point));
      axis.texts.push_back(first.texts[i] + second.texts[k]);
    }
  sort(axis);
  return axis;
}

}  // namespace

IdAxes id_axes(const Variant& variant, const std::string& pattern) {
  IdAxes result;
  for (std::size_t i = 0; i < variant.config.size();) {
    auto axis = axis_of(variant, i++);
    while (i < variant.config.size() && one_begins_another(axis.texts)) axis = product(axis, axis_of(variant, i++));
    result.axes.push_back(std::move(axis.values));
    result.texts.push_back(std::move(axis.texts));
  }
  result.needed.assign(result.axes.size() + 1, GlobPlaces(pattern.size() + 1));
  result.needed.back().back() = 1;
  for (std::size_t axis = result.axes.size(); axis-- > 0 && !pattern.empty();)
    result.needed[axis] = glob_before(pattern, result.texts[axis], result.needed[axis + 1]);
  return result;
}

IdFilter::IdFilter(const std::string& pattern, const std::string& prefix, const IdAxes& axes)
    : pattern_(pattern), axes_(axes), reached_(axes.axes.size() + 1) {
  if (!pattern_.empty()) reached_.front() = glob_after(pattern_, glob_begin(pattern_), prefix);
}

bool IdFilter::allows(std::size_t axis, std::size_t point) {
  if (pattern_.empty()) return true;
  reached_[axis + 1] = glob_after(pattern_, reached_[axis], axes_.texts[axis][point]);
  return common(reached_[axis + 1], axes_.needed[axis + 1]);
}

}  // namespace ejk::generator
