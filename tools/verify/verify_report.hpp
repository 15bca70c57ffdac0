// What `ejk verify` found: as tables, and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "verify/verify_check.hpp"

namespace ejk::tools {

struct Verified {
  std::vector<VerifyOutcome> images, random_calls, option_calls;
  std::vector<std::string> without_reference, without_variant;
  std::size_t left_out = 0;               // images that --cover leaves to other seeds
  int refused = 0;                        // random calls that no variant of the device takes
  std::string device;                     // " --device cuda:0"; empty for the CPU
  std::string lost;                       // what the device said when a fault had cost us it; nothing was verified after that
  std::vector<std::string> other_copies;  // kernels whose sources in the working folder are not those that were verified
  double seconds = 0;
};

// Images and random calls that failed, could not run, or were reached by no call.
std::size_t count_bad(const Verified& verified);
void print_report(const Verified& verified, const VerifyEffort& effort);
nlohmann::ordered_json to_json(const Verified& verified, const VerifyEffort& effort);

}  // namespace ejk::tools
