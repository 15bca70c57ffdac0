// A tuning run: calls one after the other, within one budget, from one state file.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tune/recorded_call.hpp"
#include "tune/tune_progress.hpp"
#include "tune/tune_report.hpp"
#include "tune/tune_state.hpp"

namespace ejk::tools {

struct CallToTune {
  std::string name;
  nlohmann::json key;
};

// Every case, as an invocation's key on that machine.
std::vector<CallToTune> calls_of_cases(const KernelHandle& kernel, const std::vector<const spec::Case*>& cases, const Machine& machine,
                                       std::uint64_t seed);
// The calls of a recording that are of this machine (and of the kernel, if it is not empty), each once. Throws UsageError naming the line.
std::vector<CallToTune> calls_of_recording(const std::string& file, const std::string& kernel, const Machine& machine);

struct TuneRequest {
  std::vector<CallToTune> calls;
  const Machine* machine = nullptr;
  double budget = 60, step_seconds = 10;
  int jobs = 0;
  std::uint64_t seed = 1;
  bool cost_model = true;
};

// recorded(record): a call is done; what it throws ends the run.
void tune_calls(const TuneRequest& request, TuneState& state, TuneProgress& progress,
                const std::function<void(const TuningRecord&)>& recorded, TuneReport& report);

}  // namespace ejk::tools
