// What a bench found: as a table, as JSON with every sample, and as a page for docs/bench.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_check.hpp"
#include "bench/bench_subject.hpp"
#include "bench/machine_peaks.hpp"

namespace ejk::tools {

// One case at one thread count.
struct BenchRow {
  std::string name;
  int threads = 1;
  int alignment = 64;  // of every tensor, in bytes
  // What was timed in the same rounds and was faster.
  struct Aligned {
    int alignment;
    std::vector<double> samples;
  };
  std::vector<Aligned> other_alignments;
  std::string memory;    // "warm", "cold (5 copies)"
  std::string tier;      // of the config chain
  std::string compiler;  // of the image
  Cost cost;
  double bytes = 0;
  nlohmann::ordered_json told;  // explain's words
  std::vector<double> samples;
  BenchResult result;
  double of_sgemm = 0;              // FLOP/s over those of sgemm in the same rounds; 0: not measured
  std::optional<BenchCheck> check;  // if asked for
};

// Peaks and yardstick at one thread count.
struct BenchMachine {
  Peaks peaks;
  std::vector<double> sgemm_samples;
  double sgemm_flops = 0;  // a second; 0: not measured
};

struct BenchReport {
  std::string kernel, command, date, cpu;
  std::string openblas;  // its description; empty: not asked for
  std::vector<BenchMachine> machines;
  std::vector<BenchRow> rows;
};

// "93.1%", or that the peak was measured too low: no run is faster than the machine.
std::string roofline_text(double part);

std::string terminal_text(const BenchReport& report);
nlohmann::ordered_json to_json(const BenchReport& report);
std::string markdown(const BenchReport& report);  // no host names, no paths

}  // namespace ejk::tools
