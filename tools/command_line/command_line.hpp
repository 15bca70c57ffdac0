// The command of a report.
#pragma once
#include <span>
#include <string>

namespace ejk::tools {

// `ejk COMMAND WORDS` as typed, without the options that tell of this machine's folders.
std::string command_line(const std::string& command, std::span<const std::string> words);

// Today in UTC, as 2026-01-31, for pages of results.
std::string date_today();

}  // namespace ejk::tools
