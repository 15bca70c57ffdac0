// What tuning records say of calls, for those who link nothing but the spec library: which configs were measured, and how long they took.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spec/call/binding.hpp"

namespace ejk::spec {

struct MeasuredConfig {
  std::string variant, arch;
  std::map<std::string, Value> values;
  double us = 0;  // 0: the record does not tell
};

struct MeasuredCall {
  std::string kernel, device;
  std::string key;                      // of the call, as the record has it
  CallFacts facts;                      // tensors without data
  std::vector<MeasuredConfig> configs;  // the winner first, then the baseline and the alternatives
  std::string source;                   // hash of the winner's source
  std::string name;                     // "mean_pooling x=f32[4,16,384] on cpu-avx512-2t"
  std::string place;                    // "<device>/<kernel>.jsonl:LINE"
};

// Every record of <folder>/<device>/<kernel>.jsonl, by file and line. skipped: "FILE:3: not a JSON
// object".
std::vector<MeasuredCall> read_measured(const std::filesystem::path& folder, std::vector<std::string>& skipped);

}  // namespace ejk::spec
