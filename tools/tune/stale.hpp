// Tuning records that no longer stand for what was measured, and the calls to measure anew because of them.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command_line/arguments.hpp"
#include "ejk/records.hpp"
#include "select/record_fault.hpp"
#include "store/build.hpp"
#include "tune/tune_run.hpp"

namespace ejk::tools {

// A record beside what it would stand for today: passed over if its kernel or call is gone, its config is no longer valid, or its source
// and machine code have changed. One of a machine that is not here is judged by its arch; what only the machine could tell makes it
// invalid.
struct JudgedRecord : RecordJudgement {
  std::string source;  // today's hash of the winner's source; empty: it cannot be told
  std::string code;    // hash of the machine code, if a binary of that source is here
  // To be built where the verdict waits for a binary, or the record does not say which code it is. nullopt: there is nothing to compare.
  std::optional<store::BuildItem> wanted;
};
JudgedRecord judge(const TuningRecord& record);

// Builds what the records want into the user's cache. Returns why not, by image; says on stderr how many it builds.
std::map<std::string, std::string> build_wanted(const std::vector<JudgedRecord>& judged, int jobs);

struct RecordsFolder {
  std::string role;  // agreement, user, shipped
  std::filesystem::path path;
};
// Where this process reads records, in the order in which they count.
std::vector<RecordsFolder> record_folders();
std::vector<std::filesystem::path> record_files_below(const std::filesystem::path& folder);

// The calls of this machine's stale records (of the kernel, if it is not empty), each once. Winners whose machine code has to be compared
// are compiled for that; where they cannot be, the call is measured anew.
std::vector<CallToTune> calls_of_stale_records(const std::string& kernel, const Machine& machine, int jobs);

}  // namespace ejk::tools
