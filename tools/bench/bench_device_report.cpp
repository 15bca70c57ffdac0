// The faces of a device's bench report.
#include <fmt/format.h>

#include "bench/bench_device.hpp"
#include "command_line/table.hpp"
#include "tune/stopwatch.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

std::string microseconds(double seconds) { return seconds > 0 ? fmt::format("{:.2f} us", seconds * 1e6) : "-"; }

// Times faster than a peer: its median over ours.
double ratio(const DeviceBenchRow& row, const PeerResult& peer) {
  const double ours = median(row.samples);
  return ours > 0 && !peer.samples.empty() ? median(peer.samples) / ours : 0;
}

Table table_of(const DeviceBenchReport& report) {
  std::vector<Column> columns{{"case"},
                              {"median", Align::right},
                              {"min", Align::right},
                              {"noise", Align::right},
                              {"TFLOP/s", Align::right},
                              {"GB/s", Align::right},
                              {"of copy", Align::right},
                              {"host a call", Align::right}};
  if (checked(report)) columns.push_back({"error"});
  for (const char* title : {"memory", "variant", "arch", "config", "tier"}) columns.push_back({title});
  Table table(columns);
  for (const auto& row : report.rows) {
    const double time = median(row.samples);
    std::vector<std::string> cells{row.name,
                                   seconds_text(time),
                                   seconds_text(least(row.samples)),
                                   percent(spread(row.samples)),
                                   digits(row.cost.flops / time / 1e12),
                                   digits(row.bytes / time / 1e9),
                                   report.copy > 0 ? percent(row.bytes / time / report.copy) : "-",
                                   microseconds(row.host)};
    if (row.check) cells.push_back(row.check->text());
    const auto& config = row.told["config"];
    for (const auto& cell : {row.memory, config.value("variant", ""), config.value("arch", ""), parameters_of(row.told), row.tier})
      cells.push_back(cell);
    table.row(std::move(cells));
  }
  return table;
}

Table peer_table(const DeviceBenchReport& report) {
  Table table({{"case"},
               {"kernel"},
               {"its median", Align::right},
               {"noise", Align::right},
               {"TFLOP/s", Align::right},
               {"GB/s", Align::right},
               {"ejk is faster by", Align::right}});
  for (const auto& row : report.rows)
    for (const auto& peer : row.peers) {
      if (!peer.why_not.empty()) continue;
      const double time = median(peer.samples);
      table.row({row.name, peer.name, seconds_text(time), percent(spread(peer.samples)), digits(row.cost.flops / time / 1e12),
                 digits(row.bytes / time / 1e9), fmt::format("{:.2f}", ratio(row, peer))});
    }
  return table;
}

std::string device_line(const DeviceBenchReport& report) {
  std::string text = report.device;
  if (report.copy > 0) text += fmt::format("; copies {} GB/s (read and written)", digits(report.copy / 1e9));
  if (report.empty_launch > 0)
    text += fmt::format("; the driver launches an empty kernel in {} of host time", microseconds(report.empty_launch));
  if (!report.device_clock) text += "; no device clock: times are the host's, waiting included";
  return text;
}

std::string image_lines(const DeviceBenchReport& report, const std::string& indent) {
  std::string text;
  for (const auto& row : report.rows)
    if (const auto line = indent + image_line(row.told, row.compiler) + "\n"; text.find(line) == std::string::npos) text += line;
  return text;
}

std::string peers_of(const DeviceBenchReport& report) { return fmt::format("{}", fmt::join(report.peers, "; ")); }

constexpr const char* device_legend =
    "Times are the device's, between two marks on the stream, medians over interleaved rounds. cold: the caches were flushed before the "
    "first mark. FLOPs and bytes are the spec's cost. of copy: bytes a second over those of a large copy. host a call: until the call "
    "returns, others in flight. noise: half the distance of the quartiles.";

}  // namespace

std::string terminal_text(const DeviceBenchReport& report) {
  std::string text = fmt::format("{} on {}\n\n{}", report.kernel, device_line(report), table_of(report).text("  "));
  text += lines_of_checks(report, "  ");
  if (!report.peers.empty()) {
    text += fmt::format("\nagainst {}\n{}", peers_of(report), peer_table(report).text("  "));
    for (const auto& row : report.rows)
      for (const auto& peer : row.peers)
        if (!peer.why_not.empty()) text += fmt::format("  {}, {}: not possible: {}\n", row.name, peer.name, peer.why_not);
  }
  return text + "\nimages\n" + image_lines(report, "  ") + device_legend + (checked(report) ? check_legend : "") + "\n";
}

ordered_json to_json(const DeviceBenchReport& report) {
  ordered_json object{
      {"kernel", report.kernel}, {"command", report.command}, {"date", report.date}, {"device", report.device}, {"ejk", EJK_VERSION}};
  object["device_clock"] = report.device_clock;
  object["copy_gbytes"] = report.copy / 1e9;
  object["empty_launch_seconds"] = report.empty_launch;
  if (!report.peers.empty()) object["peers"] = report.peers;
  object["results"] = ordered_json::array();
  for (const auto& row : report.rows) {
    const double time = median(row.samples);
    ordered_json entry{{"case", row.name},
                       {"memory", row.memory},
                       {"median_seconds", time},
                       {"min_seconds", least(row.samples)},
                       {"noise", spread(row.samples)},
                       {"host_seconds", row.host},
                       {"flops", row.cost.flops},
                       {"bytes", row.bytes},
                       {"config", row.told["config"]},
                       {"tier", row.tier},
                       {"image", row.told["image"]},
                       {"compiler", row.compiler},
                       {"samples", row.samples}};
    if (row.check) entry["check"] = to_json(*row.check);
    for (const auto& peer : row.peers) {
      ordered_json told{{"name", peer.name}};
      if (peer.why_not.empty())
        told.update({{"median_seconds", median(peer.samples)},
                     {"noise", spread(peer.samples)},
                     {"faster_by", ratio(row, peer)},
                     {"samples", peer.samples}});
      else
        told["why_not"] = peer.why_not;
      entry["peers"].push_back(std::move(told));
    }
    object["results"].push_back(std::move(entry));
  }
  return object;
}

std::string markdown(const DeviceBenchReport& report) {
  std::string text = fmt::format("# {}, {}\n\nMade by `{}` with ejk {} on {}.\n\n{}\n", report.kernel, report.date, report.command,
                                 EJK_VERSION, device_line(report), table_of(report).markdown());
  if (const auto lines = lines_of_checks(report, "- "); !lines.empty()) text += lines + "\n";
  if (!report.peers.empty())
    text += fmt::format("Against {}, in the same rounds:\n\n{}\n", peers_of(report), peer_table(report).markdown());
  return text + "Images:\n\n" + image_lines(report, "- ") + "\n" + device_legend + (checked(report) ? check_legend : "") + "\n";
}

}  // namespace ejk::tools
