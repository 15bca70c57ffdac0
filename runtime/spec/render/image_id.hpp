// The parts of an image's id.
#pragma once
#include <string>

#include "spec/model.hpp"

namespace ejk::spec {

// "m128": what a parameter's value adds to the id, which ends in those of all parameters in the spec's order, with '_' between them.
std::string config_part(const ConfigParameter& parameter, const Value& value);

}  // namespace ejk::spec
