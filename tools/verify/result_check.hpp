// Is what a call wrote right? By the float64 reference, or where that would take too long by another variant; for a device, by the CPU.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "execute/library_state.hpp"
#include "reference/reference.hpp"

namespace ejk::tools {

enum class CheckHow { automatic, reference, variant, none };
CheckHow check_named(const std::string& text);  // throws UsageError

struct CheckResult {
  std::string text;  // what was compared with what, and how close it is
  bool failed = false;
};

// told: what explain said of the call; its outputs hold the result. seconds: most time the reference may take under `automatic`.
CheckResult check_result(const KernelHandle& kernel, const Machine& machine, const reference::Call& call, CheckHow how,
                         const nlohmann::ordered_json& told, double seconds);

}  // namespace ejk::tools
