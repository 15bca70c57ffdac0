// Tuning records that no longer stand for what was measured, and the calls to measure anew because of them.
#pragma once
#include <string>
#include <vector>

#include "command_line/arguments.hpp"
#include "ejk/records.hpp"
#include "tune/tune_run.hpp"

namespace ejk::tools {

// Why the record is passed over: its kernel or call is gone, its config is no longer valid, or its source has changed. Empty: it is sound.
// A record of a machine that is not here is judged by its arch; properties that only the machine tells make it unknown, which is told, too.
std::string why_stale(const TuningRecord& record);

struct RecordsFolder {
  std::string role;  // agreement, user, shipped
  std::filesystem::path path;
};
// Where this process reads records, in the order in which they count.
std::vector<RecordsFolder> record_folders();
std::vector<std::filesystem::path> record_files_below(const std::filesystem::path& folder);

// The calls of this machine's stale records (of the kernel, if it is not empty), each once.
std::vector<CallToTune> calls_of_stale_records(const std::string& kernel, const Machine& machine);

}  // namespace ejk::tools
