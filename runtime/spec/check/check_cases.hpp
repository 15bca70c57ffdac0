// The checks of a spec that need its cases: every variant is tried on every case and arch it covers.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

// The names of the spec must be sound (check_names).
void check_cases(const Spec& spec, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults);

}  // namespace ejk::spec
