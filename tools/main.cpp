// ejk: finds the sub-command, runs it, and turns what it throws into a message and an exit code.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "common/guard.hpp"
#include "emulator/ptx.hpp"
#include "emulator/simt.hpp"
#include "spec/check/suggest.hpp"

namespace {

using namespace ejk::tools;

constexpr Command commands[] = {
    {"build", "compile the rendered sources of ejk-gen into a store", build},
    {"info", "this machine, its backends, the stores and the kernels", info},
    {"verify", "check every image that runs here against the float64 reference", verify},
    {"bench", "time a kernel's cases and compare them with this machine's peaks", bench},
    {"run", "run a kernel once, on random data or on your own", run},
    {"explain", "how a call would be carried out, and why", explain},
    {"tune", "measure the configs of a kernel's calls and record the best", tune},
    {"warm", "build the images that recorded calls or a compiled program will ask for", warm},
    {"cache", "list, check and prune stored images; explain a miss", cache},
    {"pack", "make a pack of the images that recorded calls use, within a size", pack},
    {"records", "list, show, import, export and merge tuning records", records},
};

void print_help(std::FILE* stream) {
  fmt::print(stream, "ejk {}: deep-learning kernels, built, checked and timed\n\nusage: ejk COMMAND [options]\n\n", EJK_VERSION);
  for (const auto& command : commands) fmt::print(stream, "  {:<9}{}\n", command.name, command.summary);
  fmt::print(stream, "\n`ejk COMMAND --help` tells more, with examples. Exit code: 0 done, 1 a check failed, 2 bad input.\n");
}

constexpr Command unlisted[] = {{"worker", "tries configs for a tuner", worker}};

const Command* find(const std::string& name) {
  for (const auto& command : unlisted)
    if (name == command.name) return &command;
  for (const auto& command : commands)
    if (name == command.name) return &command;
  return nullptr;
}

int unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.emplace_back(command.name);
  fmt::print(stderr, "ejk: no command '{}'{}\n", name, ejk::spec::suggestion(name, names));
  return exit_bad_input;
}

int exit_code(ejk::ErrorCode code) {
  return code == ejk::ErrorCode::bad_input || code == ejk::ErrorCode::unsupported ? exit_bad_input : exit_failed;
}

int run_command(const Command& command, std::span<const std::string> arguments) {
  try {
    return command.function(arguments);
  } catch (const UsageError& e) {
    fmt::print(stderr, "ejk {}: {}\n`ejk {} --help` shows how it is used\n", command.name, e.what(), command.name);
    return exit_bad_input;
  } catch (...) {
    const auto error = ejk::current_error();
    fmt::print(stderr, "ejk {}: {}\n", command.name, error.message);
    return exit_code(error.code);
  }
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) {
    print_help(stderr);
    return exit_bad_input;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    const auto* command = words.size() > 1 ? find(words[1]) : nullptr;
    if (words.size() > 1 && !command) return unknown_command(words[1]);
    if (command) return run_command(*command, std::vector<std::string>{"--help"});
    print_help(stdout);
    return exit_done;
  }
  if (words[0] == "--version") {
    fmt::print("ejk {}\n", EJK_VERSION);
    return exit_done;
  }
  const auto* command = find(words[0]);
  if (!command) return unknown_command(words[0]);
  ejk::add_backend(ejk::simt_backend());                                              // --device simt
  if (ejk::tools::names_ptx_device(words)) ejk::replace_backend(ejk::ptx_backend());  // CUDA's
  return run_command(*command, std::span(words).subspan(1));
}

}  // namespace

int main(int count, char** values) {
  const int code = run(std::vector<std::string>(values + 1, values + count));
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  if (code == exit_done) fmt::print(stderr, "ejk: what was to be printed could not be written to the standard output\n");
  return code == exit_done ? exit_failed : code;
}
