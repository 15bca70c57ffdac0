// The check that no variant computes without what it was given: each tensor and attribute of a call it takes is used, or refused.
#pragma once
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

// A variant that takes a call with a tensor must have a launch that is passed it; one that takes two values of an attribute, each of which
// matters, must tell them apart in an argument, a condition or a specialisation. Only what the contract and `supports` show without a
// case is judged, so a clause over strides or sizes refuses nothing here. The names of the spec must be sound (check_names).
void check_use(const Spec& spec, std::vector<Fault>& faults);

}  // namespace ejk::spec
