// The table tuned against heuristic, for the terminal and for docs/bench.
#include <fmt/format.h>

#include "command_line/table.hpp"
#include "tune/stopwatch.hpp"
#include "tune/tune_report.hpp"

namespace ejk::tools {
namespace {

Table table_of(const TuneReport& report) {
  Table table({{"case"},
               {"heuristic", Align::right},
               {"tuned", Align::right},
               {"faster by", Align::right},
               {"noise", Align::right},
               {"configs", Align::right},
               {"rejected", Align::right},
               {"checked against"},
               {"memory"},
               {"heuristic's config"},
               {"tuned config"}});
  for (const auto& one : report.cases) {
    if (!one.error.empty()) continue;
    const auto& record = one.outcome.record;
    const bool same = record.config == record.baseline;
    table.row({one.name, seconds_text(record.baseline_us * 1e-6), seconds_text(record.median_us * 1e-6),
               fmt::format("{:.3f}", speed_up(one)), fmt::format("{:.1f}%", 100 * record.noise),
               fmt::format("{} of {}", record.measured, one.outcome.space), std::to_string(record.rejected), record.checked_against,
               one.outcome.call.memory, config_words(record.baseline, {}),
               same ? "the same" : config_words(record.config, record.baseline)});
  }
  return table;
}

constexpr const char* legend =
    "heuristic and tuned: medians over the rounds of the final, in which both were measured in turn, fresh, after the search had picked "
    "its "
    "finalists. faster by: the median of the rounds' ratios; 1.000 where no config beat the heuristic's beyond the noise, which then "
    "stays. "
    "noise: half the distance of the quartiles of those ratios. configs: timed, of those valid for the call. cold: inputs come from "
    "memory.";

std::string mean_line(const TuneReport& report) {
  std::size_t count = 0, replaced = 0;
  for (const auto& one : report.cases)
    if (one.error.empty()) ++count, replaced += !(one.outcome.record.config == one.outcome.record.baseline);
  return fmt::format("Geometric mean over {} cases: {:.3f} times the heuristic's speed; {} have another config than the heuristic's.",
                     count, mean_speed_up(report), replaced);
}

std::string failures(const TuneReport& report, const std::string& indent) {
  std::string text, without_choice;
  for (const auto& one : report.cases) {
    if (one.no_choice)
      without_choice += (without_choice.empty() ? "" : ", ") + one.name;
    else if (!one.error.empty())
      text += fmt::format("{}{}: {}\n", indent, one.name, one.error);
  }
  return without_choice.empty() ? text : fmt::format("{}{}only one config is valid: {}\n", text, indent, without_choice);
}

std::string machine_of(const TuneReport& report) {
  for (const auto& one : report.cases)
    if (!one.outcome.record.machine.empty()) return one.outcome.record.machine;
  return report.device;
}

}  // namespace

std::string terminal_text(const TuneReport& report) {
  auto text = fmt::format("{} on {}\n\n{}\n{}\n", report.kernel, machine_of(report), table_of(report).text("  "), mean_line(report));
  if (const auto failed = failures(report, "  "); !failed.empty()) text += "\nnot tuned\n" + failed;
  return text;
}

std::string markdown(const TuneReport& report) {
  auto text = fmt::format("# {}, tuned against heuristic, {}\n\nMade by `{}` with ejk {} on {}, in {:.0f} s.\n\n{}\n\n{}\n{}\n",
                          report.kernel, report.date, report.command, EJK_VERSION, machine_of(report), report.seconds, mean_line(report),
                          table_of(report).markdown(), legend);
  if (const auto failed = failures(report, "- "); !failed.empty()) text += "\nNot tuned:\n\n" + failed;
  return text;
}

}  // namespace ejk::tools
