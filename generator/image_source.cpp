// Ids are put together from the texts of their parts; nothing but `valid` is evaluated for a config.
#include "generator/image_source.hpp"

namespace ejk::generator {

using namespace spec;

OpenSource::OpenSource(const ImageSource& source, const IdAxes* axes, const std::string& pattern) : source_(source), axes_(axes) {
  if (!axes_) return;
  filter_.emplace(pattern, source.specialised + (axes_->axes.empty() ? "" : "."), *axes_);
  if (!filter_->allows_any()) return;
  ConfigPoints::Filter allows;
  if (!pattern.empty()) allows = [this](std::size_t axis, std::size_t point) { return filter_->allows(axis, point); };
  points_.emplace(*source.variant, *source.arch, *source.binding, axes_->axes, std::move(allows));
}

bool OpenSource::next_point() {
  if (!points_ || !points_->next()) return false;
  id_ = source_.specialised + (axes_->axes.empty() ? "" : ".");
  for (std::size_t axis = 0; axis < axes_->axes.size(); ++axis) id_ += axes_->texts[axis][points_->place()[axis]];
  return true;
}

bool OpenSource::next() {
  if (axes_) return next_point();
  if (begun_) return false;
  begun_ = true;
  auto config = source_.winner ? source_.winner : heuristic_config(*source_.variant, *source_.arch, *source_.binding);
  if (!config) throw ExpressionError("no rule of the heuristic holds; end it with one that has no \"if\"", 0);
  single_ = *std::move(config);
  id_ = image_id(VariantScope(*source_.variant, *source_.arch, *source_.binding), single_);
  return true;
}

}  // namespace ejk::generator
