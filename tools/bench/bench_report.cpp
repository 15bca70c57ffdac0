// The faces of a bench report.
#include "bench/bench_report.hpp"

#include <fmt/format.h>

#include "bench/openblas.hpp"
#include "command_line/table.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

Table table_of(const BenchReport& report) {
  const bool sgemm = !report.openblas.empty();
  std::vector<Column> columns{{"case"},
                              {"threads", Align::right},
                              {"median", Align::right},
                              {"min", Align::right},
                              {"noise", Align::right},
                              {"GFLOP/s", Align::right},
                              {"GB/s", Align::right},
                              {"roofline", Align::right}};
  if (sgemm) columns.push_back({"of sgemm", Align::right});
  if (checked(report)) columns.push_back({"error"});
  for (const char* title : {"align", "memory", "variant", "arch", "config", "tier"}) columns.push_back({title});
  Table table(columns);
  for (const auto& row : report.rows) {
    const auto& result = row.result;
    std::vector<std::string> cells{row.name,
                                   fmt::format("{}", row.threads),
                                   seconds_text(result.median),
                                   seconds_text(result.least),
                                   percent(result.spread),
                                   digits(result.flops / 1e9),
                                   digits(result.bytes / 1e9),
                                   roofline_text(result.of_roofline())};
    if (sgemm) cells.push_back(fmt::format("{:.3f}", row.of_sgemm));
    if (row.check) cells.push_back(row.check->text());
    const auto& config = row.told["config"];
    for (const auto& cell : {fmt::format("{}", row.alignment), row.memory, config.value("variant", ""), config.value("arch", ""),
                             parameters_of(row.told), row.tier})
      cells.push_back(cell);
    table.row(std::move(cells));
  }
  return table;
}

Table machine_table(const BenchReport& report) {
  std::vector<Column> columns{
      {"threads", Align::right}, {"f32 multiply-add peak", Align::right}, {"read", Align::right}, {"copy", Align::right}};
  if (!report.openblas.empty()) columns.push_back({fmt::format("OpenBLAS sgemm n={}", OpenBlas::size), Align::right});
  Table table(columns);
  for (const auto& machine : report.machines) {
    std::vector<std::string> cells{fmt::format("{}", machine.peaks.threads),
                                   fmt::format("{} GFLOP/s ({})", digits(machine.peaks.flops / 1e9), machine.peaks.instructions),
                                   fmt::format("{} GB/s", digits(machine.peaks.read / 1e9)),
                                   fmt::format("{} GB/s", digits(machine.peaks.copy / 1e9))};
    if (!report.openblas.empty()) cells.push_back(fmt::format("{} GFLOP/s", digits(machine.sgemm_flops / 1e9)));
    table.row(std::move(cells));
  }
  return table;
}

constexpr const char* cpu_legend =
    "roofline: the least time by the measured peaks, max(FLOPs / multiply-add peak, bytes / read bandwidth), over the median. FLOPs and "
    "bytes are the "
    "spec's cost; '> peak measured': faster than that, since inputs came from caches or the machine was busy whenever its peaks were "
    "measured. align: what the tensors' addresses are multiples of, in bytes; of several alignments timed in the same rounds, the slowest. "
    "cold: inputs come from memory, warm: from the caches where they fit. noise: half the distance of the quartiles.";

std::string image_lines(const BenchReport& report, const std::string& indent) {
  std::string text;
  for (const auto& row : report.rows) {
    const auto line = indent + image_line(row.told, row.compiler) + "\n";
    if (text.find(line) == std::string::npos) text += line;
  }
  return text;
}

ordered_json row_json(const BenchRow& row) {
  const auto& result = row.result;
  ordered_json object{{"case", row.name},
                      {"threads", row.threads},
                      {"alignment", row.alignment},
                      {"memory", row.memory},
                      {"median_seconds", result.median},
                      {"min_seconds", result.least},
                      {"noise", result.spread},
                      {"flops", row.cost.flops},
                      {"bytes", row.bytes},
                      {"gflops", result.flops / 1e9},
                      {"gbytes", result.bytes / 1e9},
                      {"of_roofline", result.of_roofline()},
                      {"config", row.told["config"]},
                      {"tier", row.tier},
                      {"image", row.told["image"]},
                      {"compiler", row.compiler},
                      {"samples", row.samples}};
  for (const auto& [alignment, samples] : row.other_alignments)
    object["other_alignments"].push_back({{"alignment", alignment}, {"median_seconds", median(samples)}, {"samples", samples}});
  if (row.of_sgemm > 0) object["of_sgemm"] = row.of_sgemm;
  if (row.check) object["check"] = to_json(*row.check);
  return object;
}

}  // namespace

std::string roofline_text(double part) { return part > 1 ? "> peak measured" : percent(part); }

std::string terminal_text(const BenchReport& report) {
  std::string text =
      fmt::format("{} on {}\n\n{}\n{}\n", report.kernel, report.cpu, machine_table(report).text("  "), table_of(report).text("  "));
  text += lines_of_checks(report, "  ") + "images\n" + image_lines(report, "  ");
  if (!report.openblas.empty()) text += "OpenBLAS: " + report.openblas + "\n";
  return text + cpu_legend + (checked(report) ? check_legend : "") + "\n";
}

ordered_json to_json(const BenchReport& report) {
  ordered_json object{
      {"kernel", report.kernel}, {"command", report.command}, {"date", report.date}, {"cpu", report.cpu}, {"ejk", EJK_VERSION}};
  object["machine"] = ordered_json::array();
  for (const auto& machine : report.machines) {
    const auto& peaks = machine.peaks;
    ordered_json entry{{"threads", peaks.threads},        {"instructions", peaks.instructions}, {"peak_gflops", peaks.flops / 1e9},
                       {"read_gbytes", peaks.read / 1e9}, {"copy_gbytes", peaks.copy / 1e9},    {"buffer_bytes", peaks.buffer}};
    if (machine.sgemm_flops > 0)
      entry["sgemm"] = {{"n", OpenBlas::size}, {"gflops", machine.sgemm_flops / 1e9}, {"samples", machine.sgemm_samples}};
    object["machine"].push_back(std::move(entry));
  }
  if (!report.openblas.empty()) object["openblas"] = report.openblas;
  object["results"] = ordered_json::array();
  for (const auto& row : report.rows) object["results"].push_back(row_json(row));
  return object;
}

std::string markdown(const BenchReport& report) {
  std::string text = fmt::format("# {}, {}\n\nMade by `{}` with ejk {} on {}.\n\n{}\n{}\n", report.kernel, report.date, report.command,
                                 EJK_VERSION, report.cpu, machine_table(report).markdown(), table_of(report).markdown());
  if (const auto lines = lines_of_checks(report, "- "); !lines.empty()) text += lines + "\n";
  text += "Images:\n\n" + image_lines(report, "- ");
  if (!report.openblas.empty()) text += "\nOpenBLAS: " + report.openblas + ".\n";
  return text + "\n" + cpu_legend + (checked(report) ? check_legend : "") + "\n";
}

}  // namespace ejk::tools
