// What the timed runs of a case left in its outputs, beside the float64 reference: `ejk bench --check`.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/reference.hpp"

namespace ejk::tools {

struct BenchCheck {
  std::string against;  // "float64 reference", or "sample of the float64 reference"; empty: not compared
  std::string why_not;  // not compared: why; of a sample, the outputs that cannot be sampled
  std::vector<reference::Comparison> outputs;

  bool failed() const;
  std::string text() const;  // for a table: the output nearest to its tolerance, "dk 0.0022 of 0.016"
};

// call: its outputs were poisoned before the first run and hold what the last one left; its inputs are as they were made.
BenchCheck check_outputs(const reference::Call& call, std::uint64_t seed);

nlohmann::ordered_json to_json(const BenchCheck& check);

// Lines for what a table's cell cannot hold, each after the case's name: failures, and what was not compared.
std::string check_lines(const std::string& name, const std::optional<BenchCheck>& check, const std::string& indent);

// Of a report of either side: whether its rows were compared, and their lines.
template <class Report>
bool checked(const Report& report) {
  return !report.rows.empty() && report.rows.front().check;
}
template <class Report>
std::string lines_of_checks(const Report& report, const std::string& indent) {
  std::string text;
  for (const auto& row : report.rows) text += check_lines(row.name, row.check, indent);
  return text;
}

inline constexpr const char* check_legend =
    " error: of what the timed runs left in the outputs, relative to the float64 reference, and its tolerance, of the output nearest to "
    "its own.";

}  // namespace ejk::tools
