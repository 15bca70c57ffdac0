// An odometer that knows which of its wheels a clause has read.
#include "spec/choose/config_points.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "spec/choose/names_read.hpp"

namespace ejk::spec {
namespace {

bool reads(const ConfigAxis& axis, const Variant& variant, const NamesRead& names) {
  return std::any_of(axis.parameters.begin(), axis.parameters.end(), [&](auto each) { return names.has(variant.config[each].name); });
}

std::vector<std::size_t> reach_of(const Variant& variant, const Spec& spec, const std::vector<ConfigAxis>& axes) {
  std::vector<std::size_t> reach;
  NamesRead names(variant, spec);  // of the clause and those before it, without which it is not asked
  for (const Expression& clause : variant.valid) {
    names.add(clause);
    std::size_t axis = axes.size();
    while (axis > 0 && !reads(axes[axis - 1], variant, names)) --axis;
    reach.push_back(axis);
  }
  return reach;
}

}  // namespace

bool valid_for_all_calls(const Variant& variant, const Spec& spec) {
  NamesRead names(variant, spec);
  for (const Expression& clause : variant.valid) names.add(clause);
  return !names.of_the_call();
}

std::vector<ConfigAxis> config_axes(const Variant& variant) {
  std::vector<ConfigAxis> axes(variant.config.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i].parameters = {i};
    for (const Value& value : variant.config[i].values) axes[i].points.push_back({value});
  }
  return axes;
}

ConfigPoints::ConfigPoints(const Variant& variant, const Arch& arch, const Binding& binding, const std::vector<ConfigAxis>& axes,
                           Filter filter)
    : variant_(variant),
      axes_(axes),
      filter_(std::move(filter)),
      scope_(variant, arch, binding),
      place_(axes.size()),
      reach_(reach_of(variant, binding.spec->server(), axes)) {
  for (const ConfigParameter& parameter : variant.config) config_.emplace_back(parameter.name, Value{});
}

void ConfigPoints::set(std::size_t axis, std::size_t point) {
  place_[axis] = point;
  const auto& [parameters, points] = axes_[axis];
  for (std::size_t i = 0; i < parameters.size(); ++i) config_[parameters[i]].second = points[point][i];
}

// To the next point of the axis, or of the nearest before it that has one; all behind are at their first. changed: from there on.
bool ConfigPoints::step(std::size_t axis, std::size_t& changed) {
  while (place_[axis] + 1 == axes_[axis].points.size()) {
    if (axis == 0) return false;
    --axis;
  }
  changed = axis;
  set(axis, place_[axis] + 1);
  for (std::size_t behind = axis + 1; behind < axes_.size(); ++behind) set(behind, 0);
  return true;
}

// How many axes, from the first on, make every config with their points invalid or unwanted; all but those: this one is neither.
std::size_t ConfigPoints::ruled_out_by(std::size_t changed) {
  constexpr auto none = ~std::size_t{0};
  while (known_ > 0 && reach_[known_ - 1] > changed) --known_;
  for (std::size_t axis = changed; filter_ && axis < axes_.size(); ++axis)
    if (!filter_(axis, place_[axis])) return axis + 1;
  scope_.set_config(config_);
  for (; known_ < variant_.valid.size(); ++known_) {
    const Expression& clause = variant_.valid[known_];
    try {
      if (!clause.boolean(scope_)) return reach_[known_];
    } catch (const ExpressionError& e) {
      throw ExpressionError(fmt::format("valid `{}`: {}", clause.text(), e.what()), 0);
    }
  }
  return none;
}

bool ConfigPoints::next() {
  std::size_t changed = 0;
  if (begun_) {
    if (axes_.empty() || !step(axes_.size() - 1, changed)) return false;
  } else {
    begun_ = true;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      if (axes_[axis].points.empty()) return false;
      set(axis, 0);
    }
  }
  for (;;) {
    const std::size_t axes = ruled_out_by(changed);
    if (axes > axes_.size()) return true;
    if (axes == 0 || !step(axes - 1, changed)) return false;
  }
}

void for_each_config(const Variant& variant, const Arch& arch, const Binding& binding, const std::function<void(const Config&)>& visit) {
  const auto axes = config_axes(variant);
  ConfigPoints points(variant, arch, binding, axes);
  while (points.next()) visit(points.config());
}

}  // namespace ejk::spec
