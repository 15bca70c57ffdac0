// What `ejk tune` found, and its faces: JSON (also what a run that was killed goes on from), HTML, Markdown, the terminal.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tune/outcome.hpp"

namespace ejk::tools {

struct TunedCase {
  std::string name;   // the case's, or "call 3" of a recording
  std::string error;  // it was not tuned; empty: `outcome` says how it went
  TuningOutcome outcome = {};
  bool no_choice = false;  // not tuned because only one config is valid: no failure
};

struct TuneReport {
  std::string kernel, command, date, device;  // device: the fingerprint
  double budget = 0, seconds = 0;
  double peak_flops = 0, peak_bytes = 0;  // a second; 0: not measured
  std::vector<TunedCase> cases;
};

nlohmann::json to_json(const Trial& trial);
Trial trial_from_json(const nlohmann::json& node);  // throws nlohmann::json::exception, CodedError
nlohmann::json to_json(const TuningOutcome& outcome);
TuningOutcome outcome_from_json(const nlohmann::json& node);  // throws as above

nlohmann::ordered_json to_json(const TuneReport& report);
std::string html(const TuneReport& report);      // one page, no scripts, nothing from elsewhere
std::string markdown(const TuneReport& report);  // the table tuned against heuristic; no host names, no paths
std::string terminal_text(const TuneReport& report);

// Default's time over the winner's, its geometric mean over the cases that were tuned; 0: none was.
double speed_up(const TunedCase& one);
double mean_speed_up(const TuneReport& report);
// Why a case's winner or default has that config, in few words: "block_c=1024", "tiled on avx2: vectors=3 panel=8".
std::string config_words(const Config& config, const Config& beside);
std::string counted(const TunedCase& one);  // "3 of 9 configs timed, 1 rejected, 2 pruned by the cost model"

}  // namespace ejk::tools
