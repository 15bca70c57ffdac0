// A sub-command of ejk: its name, one line about it, and the function that does it.
#pragma once
#include <span>
#include <string>

namespace ejk::tools {

// Exit codes of the tool.
inline constexpr int exit_done = 0;
inline constexpr int exit_failed = 1;     // a check, a compilation or a launch failed
inline constexpr int exit_bad_input = 2;  // the command line, a file or a call is wrong

struct Command {
  const char* name;
  const char* summary;
  int (*function)(std::span<const std::string> arguments);
};

// Each returns an exit code; what it throws, main() prints.
int build(std::span<const std::string> arguments);
int info(std::span<const std::string> arguments);
int verify(std::span<const std::string> arguments);
int bench(std::span<const std::string> arguments);
int run(std::span<const std::string> arguments);
int explain(std::span<const std::string> arguments);
int cache(std::span<const std::string> arguments);
int tune(std::span<const std::string> arguments);
int worker(std::span<const std::string> arguments);  // not listed: for the tuner, not for people
int pack(std::span<const std::string> arguments);
int warm(std::span<const std::string> arguments);
int records(std::span<const std::string> arguments);

}  // namespace ejk::tools
