// Running a compiler, its environment, and what is told of its failures.
#include "backends/process/compiler_run.hpp"

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "backends/process/process.hpp"
#include "backends/process/temporary_folder.hpp"

extern char** environ;

namespace ejk {
namespace {

namespace fs = std::filesystem;
constexpr int compile_timeout_s = 300, version_timeout_s = 30;

bool is_executable_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return !file.fail();
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

bool lacks_room(const std::string& log) {
  return has(log, "No space left on device") || has(log, "Cannot allocate memory") || has(log, "out of memory") ||
         has(log, "Disk quota exceeded") || has(log, "File too large") || has(log, "Killed signal");
}

void explain_failure(const ProcessResult& run, const std::string& program, CompileResult& result) {
  const bool crashed = run.signal != 0;
  result.transient = !run.started || run.timed_out || crashed || run.exit_status < 0 || lacks_room(run.output);
  if (run.timed_out) result.log += fmt::format("\n{} was stopped after {} s", program, compile_timeout_s);
  if (crashed && !run.timed_out) {
    result.log += fmt::format("\n{} was ended by signal {} ({}){}", program, run.signal, strsignal(run.signal),
                              run.signal == 9 ? "; the system may be out of memory" : "");
  }
  if (result.log.empty()) result.log = fmt::format("{} failed with exit status {} and said nothing", program, run.exit_status);
}

}  // namespace

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string path_of_program(const std::string& program) {
  if (program.empty()) return {};
  if (program.find('/') != std::string::npos) return is_executable_file(program) ? fs::absolute(program).string() : "";
  std::istringstream folders(environment_variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && is_executable_file(fs::path(folder) / program)) return fs::absolute(fs::path(folder) / program).string();
  return {};
}

SystemCompiler ask_version(const std::vector<std::string>& command, std::string& complaints) {
  SystemCompiler compiler;
  auto asked = command;
  asked.push_back("--version");
  const auto version = run_process({asked, {}, compiler_environment("/tmp"), version_timeout_s});
  const auto first_line = version.output.substr(0, version.output.find('\n'));
  if (!version.ok()) {
    complaints += fmt::format("; {} --version failed: {}", command.front(), first_line);
    return {};
  }
  compiler.command = command;
  compiler.description = first_line;
  return compiler;
}

CompileResult run_compiler(const SystemCompiler& compiler, const std::string& source, const std::vector<std::string>& options,
                           const std::string& source_name, const std::string& binary_name) {
  CompileResult result;
  result.compiler = compiler.description;
  const auto program = fs::path(compiler.command.front()).filename().string();
  try {
    const TemporaryFolder folder(work_folder_name());
    if (!write_file(folder.path() / source_name, source)) {
      result.transient = true;
      result.log = fmt::format("cannot write {} bytes of source to {}: is the disk full?", source.size(), folder.path().string());
      return result;
    }
    result.command = compiler.command;
    result.command.insert(result.command.end(), options.begin(), options.end());
    for (const auto& word : {std::string("-o"), binary_name, source_name}) result.command.push_back(word);
    const auto run = run_process({result.command, folder.path(), compiler_environment(folder.path().string()), compile_timeout_s});
    result.command.front() = program;
    result.log = run.output;
    if (run.ok()) result.binary = read_file(folder.path() / binary_name);
    result.ok = !result.binary.empty();
    if (!result.ok) explain_failure(run, program, result);
  } catch (const std::runtime_error& error) {
    result.transient = true;
    result.log = error.what();
  }
  return result;
}

std::vector<std::string> compiler_environment(const std::string& folder) {
  static const auto& dropped = *new std::set<std::string>{"CPATH",
                                                          "C_INCLUDE_PATH",
                                                          "CPLUS_INCLUDE_PATH",
                                                          "LIBRARY_PATH",
                                                          "DEPENDENCIES_OUTPUT",
                                                          "SUNPRO_DEPENDENCIES",
                                                          "SOURCE_DATE_EPOCH",
                                                          "GCC_COMPARE_DEBUG",
                                                          "CCC_OVERRIDE_OPTIONS",
                                                          "LD_PRELOAD",
                                                          "LD_RUN_PATH",
                                                          "LANG",
                                                          "LANGUAGE",
                                                          "TMPDIR",
                                                          "PWD"};
  std::vector<std::string> kept;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    if (!dropped.contains(name) && !name.starts_with("LC_")) kept.push_back(text);
  }
  kept.push_back("LC_ALL=C");
  kept.push_back("TMPDIR=" + folder);
  return kept;
}

}  // namespace ejk
