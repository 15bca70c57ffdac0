// Checks of one call's result.
#include "verify/result_check.hpp"

#include <fmt/format.h>

#include "command_line/arguments.hpp"
#include "command_line/device_option.hpp"
#include "command_line/kernel_call.hpp"
#include "command_line/table.hpp"
#include "common/guard.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
using reference::Call;

// Plain variants do a few GFLOP/s: above this another arch of the same variant is the only judge that is quick.
constexpr double most_flops_of_a_plain_variant = 2e10;

CheckResult compared(const Call& call, const reference::Values& expected, const std::string& with, double factor) {
  CheckResult result;
  double worst = 0;
  for (const auto& output : call.outputs) {
    const auto comparison = reference::compare(output, expected.at(output.name()), factor * reference::tolerance_of(call, output),
                                               reference::rounding_of(expected, output.name()));
    worst = std::max(worst, comparison.error);
    result.text += fmt::format("{}{} error {} (tolerance {})", result.text.empty() ? "" : "; ", output.name(), digits(comparison.error),
                               digits(comparison.tolerance));
    if (comparison.ok()) continue;
    result.failed = true;
    result.text += ": " + comparison.message;
  }
  result.text = (result.failed ? "FAILED against " : "agrees with ") + with + ": " + result.text;
  return result;
}

// The eligible variant or arch to compare with: another variant if the call is small enough, else the same one on another arch.
ordered_json another(const ordered_json& told) {
  ordered_json other_variant, other_arch;
  for (const auto& candidate : told["variants"]) {
    if (candidate["state"] != "eligible") continue;
    if (candidate["name"] != told["config"]["variant"])
      other_variant = candidate;  // the last one: the plainest
    else if (other_arch.is_null())
      other_arch = candidate;
  }
  const auto& flops = told["cost"].value("flops", ordered_json());
  const bool small = flops.is_number() && flops.get<double>() <= most_flops_of_a_plain_variant;
  return !other_variant.is_null() && (small || other_arch.is_null()) ? other_variant : other_arch;
}

// nullopt: the CPU has no binary for it.
std::optional<CheckResult> by_cpu(const KernelHandle& kernel, const Call& call) {
  const auto& cpu = find_device({"cpu", 0});
  try {
    Call copy = call;
    const auto values = reference::run_copy(copy, execution(kernel, "", cpu));
    const auto told = PackedCall(kernel, copy, cpu).explain("");
    return compared(call, values, told["image"]["id"].get<std::string>() + " on the CPU", 2);
  } catch (const CodedError& e) {
    if (e.code() == ErrorCode::missing_image || e.code() == ErrorCode::compile_failed || e.code() == ErrorCode::unsupported) return {};
    throw;
  }
}

CheckResult by_variant(const KernelHandle& kernel, const Machine& machine, const Call& call, const ordered_json& told) {
  const auto other = another(told);
  if (other.is_null())
    return {"not checked: no other variant or arch takes this call, and it is too large for the reference (--check reference insists)"};
  const ordered_json config{{"variant", other["name"]}, {"arch", other["arch"]}};
  Call copy = call;
  const auto values = reference::run_copy(copy, execution(kernel, config.dump(), machine));
  return compared(call, values, fmt::format("variant {} on {}", other["name"].get<std::string>(), other["arch"].get<std::string>()), 2);
}

}  // namespace

CheckHow check_named(const std::string& text) {
  if (text == "auto") return CheckHow::automatic;
  if (text == "reference") return CheckHow::reference;
  if (text == "variant") return CheckHow::variant;
  if (text == "none") return CheckHow::none;
  throw UsageError(fmt::format("--check: expected auto, reference, variant or none; found '{}'", text));
}

CheckResult check_result(const KernelHandle& kernel, const Machine& machine, const Call& call, CheckHow how, const ordered_json& told,
                         double seconds) {
  if (how == CheckHow::none) return {"not asked for"};
  const auto* truth = reference::find_reference(kernel.name);
  if (how == CheckHow::reference && !truth) throw UsageError(fmt::format("--check reference: ejk has no reference of {}", kernel.name));
  const bool quick = affordable(cost_of(*kernel.spec, call.binding), tensor_bytes(call.facts()), seconds);
  if (how == CheckHow::reference || (how == CheckHow::automatic && truth && quick))
    return compared(call, truth->compute(call), "the float64 reference", 1);
  if (machine.backend->platform() != "cpu")
    if (auto result = by_cpu(kernel, call)) return *std::move(result);
  return by_variant(kernel, machine, call, told);
}

}  // namespace ejk::tools
