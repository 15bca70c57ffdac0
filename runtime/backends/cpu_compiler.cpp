// Finds the C++ compiler: candidates in order, each asked for its version and given a small kernel.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "backends/cpu_compile.hpp"
#include "backends/cpu_features.hpp"
#include "backends/process.hpp"

extern char** environ;

namespace ejk {
namespace {

namespace fs = std::filesystem;
constexpr int version_timeout_s = 30;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_executable_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// The path of a program: as given if it has a slash, else the first of its name on $PATH. Empty: none.
std::string path_of(const std::string& program) {
  if (program.empty()) return {};
  if (program.find('/') != std::string::npos) return is_executable_file(program) ? fs::absolute(program).string() : "";
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && is_executable_file(fs::path(folder) / program)) return fs::absolute(fs::path(folder) / program).string();
  return {};
}

struct Candidate {
  std::string program;
  std::vector<std::string> options;
};

std::vector<Candidate> candidates_for(const std::string& machine) {
  if (machine.empty() || machine == cpu_machine()) {
    std::vector<Candidate> own = {{"c++", {}}, {"g++", {}}, {"clang++", {}}};
    if (const auto chosen = variable("CXX"); !path_of(chosen).empty()) own.insert(own.begin(), {chosen, {}});
    return own;
  }
  return {{machine + "-linux-gnu-g++", {}}, {"clang++", {"--target=" + machine + "-linux-gnu"}}};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Half the point of a small kernel is _Float16, which older compilers lack.
spec::Image small_kernel() {
  spec::Image image;
  image.id = "a small kernel";
  image.source =
      "typedef _Float16 half;\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) void ejk_small(void* const* a, const void*) {\n"
      "  *static_cast<half*>(a[0]) = static_cast<half>(static_cast<float>(*static_cast<half*>(a[0])) + 1);\n}\n";
  return image;
}

// Adds what is wrong with the candidate to `complaints`, or returns it.
SystemCompiler judge(const Candidate& candidate, std::string& complaints) {
  const auto path = path_of(candidate.program);
  if (path.empty()) return {};
  SystemCompiler compiler;
  compiler.command = {path};
  compiler.command.insert(compiler.command.end(), candidate.options.begin(), candidate.options.end());
  auto asked = compiler.command;
  asked.push_back("--version");
  const auto version = run_process({asked, {}, compiler_environment("/tmp"), version_timeout_s});
  if (!version.ok()) {
    complaints += fmt::format("; {} --version failed: {}", path, first_line(version.output));
    return {};
  }
  compiler.description = first_line(version.output);
  const auto trial = compile_cpu_image(compiler, small_kernel());
  if (trial.ok) return compiler;
  complaints += fmt::format("; {} ({}) does not build a small kernel: {}", path, compiler.description, first_line(trial.log));
  return {};
}

SystemCompiler search(const std::string& machine) {
  std::string names, complaints;
  for (const auto& candidate : candidates_for(machine)) {
    if (auto compiler = judge(candidate, complaints); compiler.found()) return compiler;
    names += fmt::format("{}{}", names.empty() ? "" : ", ",
                         fmt::join(std::vector{candidate.program, fmt::format("{}", fmt::join(candidate.options, " "))},
                                   candidate.options.empty() ? "" : " "));
  }
  SystemCompiler none;
  const bool own = machine.empty() || machine == cpu_machine();
  none.why_not = fmt::format("no C++ compiler{}: looked for {} on PATH{}", own ? "" : " for " + machine, names, complaints);
  return none;
}

}  // namespace

std::vector<std::string> compiler_environment(const std::string& folder) {
  static const std::set<std::string> dropped = {"CPATH",
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

std::shared_ptr<const SystemCompiler> system_compiler(const std::string& machine) {
  static std::mutex mutex;
  static std::map<std::array<std::string, 3>, std::shared_ptr<const SystemCompiler>> known;
  const std::lock_guard lock(mutex);
  auto& compiler = known[{machine, variable("CXX"), variable("PATH")}];
  if (!compiler) compiler = std::make_shared<SystemCompiler>(search(machine));
  return compiler;
}

}  // namespace ejk
