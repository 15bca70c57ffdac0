// The images of one case, variant and arch, in ascending order of their ids.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "generator/id_axes.hpp"
#include "spec/choose/config_points.hpp"

namespace ejk::generator {

// Where images come from, and the part of their ids that they share.
struct ImageSource {
  std::shared_ptr<const spec::Spec> spec;
  const spec::Variant* variant = nullptr;
  const spec::Arch* arch = nullptr;
  std::shared_ptr<const spec::Binding> binding;
  std::string case_name;
  std::optional<spec::Config> winner;  // of a record: its only image
  std::string specialised;             // the id without the config
  std::string facts;                   // of the call, on which its images' texts may depend
};

// axes: all configs that the pattern allows; nullptr: one config, the winner or the heuristic's.
class OpenSource {
 public:
  OpenSource(const ImageSource& source, const IdAxes* axes, const std::string& pattern);

  bool next();  // false: there is none. Throws ExpressionError.
  const std::string& id() const { return id_; }
  const spec::Config& config() const { return axes_ ? points_->config() : single_; }

 private:
  bool next_point();

  const ImageSource& source_;
  const IdAxes* axes_;
  std::optional<IdFilter> filter_;
  std::optional<spec::ConfigPoints> points_;
  spec::Config single_;
  bool begun_ = false;
  std::string id_;
};

}  // namespace ejk::generator
