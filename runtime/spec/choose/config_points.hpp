// The valid configs of a variant for a call, one after the other, none of them stored.
//
// What cannot be is passed over in whole blocks: a clause of `valid` that fails is asked again once a parameter that it may read has
// another value, and so is a filter. Clauses are asked in their order, as if each config were judged alone.
#pragma once
#include <functional>
#include <vector>

#include "spec/render/image.hpp"

namespace ejk::spec {

// Parameters that take their values together; mostly one.
struct ConfigAxis {
  std::vector<std::size_t> parameters;     // places in Variant::config
  std::vector<std::vector<Value>> points;  // of each a value for each of the parameters
};

// A parameter an axis, in the spec's order.
std::vector<ConfigAxis> config_axes(const Variant& variant);

class ConfigPoints {
 public:
  // Whether any config may be wanted that has this point on the axis, given the points of the axes before it, which it was asked for last.
  using Filter = std::function<bool(std::size_t axis, std::size_t point)>;

  // The last axis is the fastest. All but `filter` must outlive this.
  ConfigPoints(const Variant& variant, const Arch& arch, const Binding& binding, const std::vector<ConfigAxis>& axes, Filter filter = {});
  ConfigPoints(const ConfigPoints&) = delete;
  ConfigPoints& operator=(const ConfigPoints&) = delete;

  bool next();  // to the next config; false: there is none. Throws ExpressionError that names the clause.
  const Config& config() const { return config_; }
  const std::vector<std::size_t>& place() const { return place_; }  // a point an axis

 private:
  bool step(std::size_t axis, std::size_t& changed);
  void set(std::size_t axis, std::size_t point);
  std::size_t ruled_out_by(std::size_t changed);

  const Variant& variant_;
  const std::vector<ConfigAxis>& axes_;
  const Filter filter_;
  Config config_;
  VariantScope scope_;
  std::vector<std::size_t> place_;
  std::vector<std::size_t> reach_;  // of each clause: how many axes decide it and those before it
  std::size_t known_ = 0;           // clauses that hold, whatever the axes behind their reach
  bool begun_ = false;
};

// Whether the valid configs follow from the arch and the specialisation, so that all calls of one specialisation have the same.
bool valid_for_all_calls(const Variant& variant, const Spec& spec);

// Every valid config, in the order of the space.
void for_each_config(const Variant& variant, const Arch& arch, const Binding& binding, const std::function<void(const Config&)>& visit);

}  // namespace ejk::spec
