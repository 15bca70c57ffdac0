// A kernel's contract as JSON: what bindings of other languages are made from.
#pragma once
#include <nlohmann/json.hpp>

#include "spec/model.hpp"

namespace ejk {

nlohmann::ordered_json contract_json(const spec::Spec& spec);

}  // namespace ejk
