// The comparison of a benchmarked case with the reference: all of it where that takes a second, else a sample.
#include "bench/bench_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command_line/kernel_call.hpp"
#include "command_line/table.hpp"

namespace ejk::tools {
namespace {

using reference::Comparison;

constexpr double seconds_of_a_whole_check = 1;

double of_tolerance(const Comparison& result) { return result.tolerance > 0 ? result.error / result.tolerance : 0; }

void compare_all(const reference::KernelReference& truth, const reference::Call& call, BenchCheck& check) {
  check.against = "float64 reference";
  const auto values = truth.compute(call);
  for (const auto& output : call.outputs)
    check.outputs.push_back(reference::compare(output, values.at(output.name()), reference::tolerance_of(call, output),
                                               reference::rounding_of(values, output.name())));
}

void compare_sample(const reference::KernelReference& truth, const reference::Call& call, std::uint64_t seed, BenchCheck& check) {
  auto rng = reference::Rng::stream(seed, "sample");
  const auto samples = truth.sample(call, rng);
  for (const auto& output : call.outputs) {
    const auto sample = samples.find(output.name());
    if (sample == samples.end()) {
      check.why_not += (check.why_not.empty() ? "" : ", ") + output.name();
      continue;
    }
    check.outputs.push_back(reference::compare(output, sample->second, reference::tolerance_of(call, output)));
  }
  if (!check.why_not.empty()) check.why_not += " cannot be sampled, and the call is too large for the whole reference";
  if (!check.outputs.empty()) check.against = "sample of the float64 reference";
}

}  // namespace

bool BenchCheck::failed() const {
  return std::any_of(outputs.begin(), outputs.end(), [](const Comparison& result) { return !result.ok(); });
}

std::string BenchCheck::text() const {
  if (outputs.empty()) return "not compared";
  const auto worst = std::max_element(outputs.begin(), outputs.end(),
                                      [](const Comparison& a, const Comparison& b) { return of_tolerance(a) < of_tolerance(b); });
  return fmt::format("{}{} {} of {}", failed() ? "WRONG: " : "", worst->tensor, digits(worst->error), digits(worst->tolerance));
}

BenchCheck check_outputs(const reference::Call& call, std::uint64_t seed) {
  BenchCheck check;
  const auto* truth = reference::find_reference(call.spec->kernel);
  const auto updated = std::find_if(call.inputs.begin(), call.inputs.end(),
                                    [&](const auto& input) { return !call.spec->tensor(input.name())->updated_as.empty(); });
  if (!truth)
    check.why_not = "ejk has no reference of " + call.spec->kernel;
  else if (updated != call.inputs.end())
    check.why_not = "it updates " + updated->name() + ": each timed run went on from what the one before had left; ejk verify compares it";
  else if (affordable(cost_of(*call.spec, call.binding), tensor_bytes(call.facts()), seconds_of_a_whole_check))
    compare_all(*truth, call, check);
  else
    compare_sample(*truth, call, seed, check);
  return check;
}

nlohmann::ordered_json to_json(const BenchCheck& check) {
  nlohmann::ordered_json object{{"against", check.against}, {"failed", check.failed()}};
  if (!check.why_not.empty()) object["not_compared"] = check.why_not;
  object["outputs"] = nlohmann::ordered_json::object();
  for (const auto& result : check.outputs) {
    object["outputs"][result.tensor] = {{"error", result.error}, {"tolerance", result.tolerance}, {"worst_element", result.worst}};
    if (!result.ok()) object["outputs"][result.tensor]["message"] = result.message;
  }
  return object;
}

std::string check_lines(const std::string& name, const std::optional<BenchCheck>& check, const std::string& indent) {
  std::string text;
  if (!check) return text;
  for (const auto& result : check->outputs)
    if (!result.ok()) text += fmt::format("{}{}: FAILED against a {}: {}\n", indent, name, check->against, result.message);
  if (!check->why_not.empty()) text += fmt::format("{}{}: not compared: {}\n", indent, name, check->why_not);
  return text;
}

}  // namespace ejk::tools
