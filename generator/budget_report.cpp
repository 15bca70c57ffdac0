// Telling the regret of a budget.
#include "generator/budget_report.hpp"

#include <fmt/format.h>
#include <algorithm>

namespace ejk::generator {

nlohmann::ordered_json to_json(const BudgetReport& report) {
  auto calls = nlohmann::ordered_json::array();
  for (const auto& row : report.rows)
    calls.push_back({{"call", row.call},
                     {"image", row.image},
                     {"served_by", row.served_by ? nlohmann::ordered_json(*row.served_by) : nlohmann::ordered_json(nullptr)},
                     {"slowdown", row.slowdown ? nlohmann::ordered_json(*row.slowdown) : nlohmann::ordered_json("unknown")}});
  return {
      {"method", report.method},         {"exact", report.exact},       {"bytes", report.bytes},     {"estimated_sizes", report.estimated},
      {"considered", report.considered}, {"tuned_calls", report.tuned}, {"calls", std::move(calls)}, {"skipped", report.skipped}};
}

void print(const BudgetReport& report, std::size_t images) {
  std::size_t own = 0, unserved = 0, unknown = 0;
  double worst = 0, sum = 0;
  for (const auto& row : report.rows) {
    if (row.served_by == row.image) {
      ++own;
      continue;
    }
    if (!row.served_by) {
      ++unserved;
      fmt::print("  {}: {} is left out, and nothing serves it\n", row.call, row.image);
    } else if (!row.slowdown) {
      ++unknown;
      fmt::print("  {}: {} instead of {}: unknown, not measured\n", row.call, *row.served_by, row.image);
    } else {
      worst = std::max(worst, *row.slowdown);
      sum += *row.slowdown;
      fmt::print("  {}: {} instead of {}: {:+.1f}%\n", row.call, *row.served_by, row.image, 100 * *row.slowdown);
    }
  }
  for (const auto& line : report.skipped) fmt::print("  not counted: {}\n", line);
  const auto measured = report.rows.size() - own - unserved - unknown;
  fmt::print(
      "regret: {} of {} calls ({} tuned) keep their own image; {} lose {:.1f}% on average, {:.1f}% at most; {} an unknown amount; {} have "
      "none\n",
      own, report.rows.size(), report.tuned, measured, measured ? 100 * sum / static_cast<double>(measured) : 0.0, 100 * worst, unknown,
      unserved);
  fmt::print("{} of {} images, {:.1f} MB{}; {}{}\n", images, report.considered, static_cast<double>(report.bytes) / 1e6,
             report.estimated
                 ? fmt::format(" ({} binaries' sizes are guessed from their sources: --sizes STORE knows better)", report.estimated)
                 : "",
             report.method, report.exact ? " (exact)" : "");
}

}  // namespace ejk::generator
