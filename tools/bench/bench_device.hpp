// Benchmarks on a device: cases in turn by the device's clock, beside its copy bandwidth and, if asked, other libraries.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_check.hpp"
#include "bench/bench_request.hpp"
#include "bench/peer.hpp"
#include "command_line/kernel_call.hpp"

namespace ejk::tools {

struct PeerResult {
  std::string name, why_not;  // why_not: it cannot do this call
  std::vector<double> samples;
};

struct DeviceBenchRow {
  std::string name, memory, tier, compiler;
  Cost cost;
  double bytes = 0;
  nlohmann::ordered_json told;  // explain's words
  std::vector<double> samples;  // seconds on the device
  double host = 0;              // seconds until a call returns, others in flight
  std::vector<PeerResult> peers;
  std::optional<BenchCheck> check;  // if asked for
};

struct DeviceBenchReport {
  std::string kernel, command, date, device;
  std::vector<std::string> peers;  // their versions
  bool device_clock = false;       // false: times are the host's, waiting included
  double copy = 0;                 // bytes a second, read and written ones; 0: not measured
  double empty_launch = 0;         // host seconds of the driver's launch of an empty kernel; 0: not measured
  std::vector<DeviceBenchRow> rows;
};

// Fills the report; `progressed` is called when more rows are there. Throws what calls throw, and std::runtime_error in the driver's or a
// child's words.
void bench_device(const BenchRequest& request, const Machine& machine, const std::vector<std::unique_ptr<Peer>>& peers,
                  DeviceBenchReport& report, const std::function<void()>& progressed);

std::string terminal_text(const DeviceBenchReport& report);
nlohmann::ordered_json to_json(const DeviceBenchReport& report);
std::string markdown(const DeviceBenchReport& report);  // no host names, no paths

}  // namespace ejk::tools
