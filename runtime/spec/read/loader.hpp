// JSON to model: one spec or arch file, faults collected instead of thrown one by one.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

// Reads text (shown as `file` in faults). Adds every fault of form: not JSON (line and column), unknown, duplicate or missing
// field, wrong type, bad name, bad expression, missing doc. nullopt if there were any. Of cases that are left for later, a fault is thrown
// when they are asked for.
enum class WhenCases { now, asked_for };
std::optional<Spec> load_spec(const std::string& file, const std::string& text, std::vector<Fault>& faults,
                              WhenCases when = WhenCases::now);
std::optional<Arch> load_arch(const std::string& file, const std::string& text, std::vector<Fault>& faults);

}  // namespace ejk::spec
