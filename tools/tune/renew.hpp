// ejk records renew: keeps records whose edited sources compile to the machine code that was measured.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ejk/records.hpp"

namespace ejk::tools {

struct RenewReport {
  std::size_t records = 0;     // that were looked at
  std::size_t sound = 0;       // of today's source, as they were
  std::size_t renewed = 0;     // the source is another, the machine code is the same: now of today's source
  std::size_t identified = 0;  // of today's source: the hash of its machine code was missing, and was added
  struct Stale {
    std::string place, reason;  // "FILE:LINE"
  };
  std::vector<Stale> stale;  // those that stay so
};

// Changes the files in place; records that `wanted` does not name stay as they are. Throws UsageError if a file
// cannot be read, CodedError if it cannot be written.
RenewReport renew_records(const std::vector<std::filesystem::path>& files, const std::function<bool(const TuningRecord&)>& wanted,
                          int jobs);

}  // namespace ejk::tools
