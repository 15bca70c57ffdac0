// Finds the C++ compiler: candidates in order, each asked for its version and given a small kernel.
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>

#include "backends/cpu/cpu_compile.hpp"
#include "backends/cpu/cpu_features.hpp"

namespace ejk {
namespace {

struct Candidate {
  std::string program;
  std::vector<std::string> options;
};

std::vector<Candidate> candidates_for(const std::string& machine) {
  if (machine.empty() || machine == cpu_machine()) {
    std::vector<Candidate> own = {{"c++", {}}, {"g++", {}}, {"clang++", {}}};
    if (const auto chosen = environment_variable("CXX"); !path_of_program(chosen).empty()) own.insert(own.begin(), {chosen, {}});
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

// Adds what is wrong with the candidate to `complaints`, or returns it. `hindered`: what kept it from being judged, such as a full disk.
SystemCompiler judge(const Candidate& candidate, std::string& complaints, std::string& hindered) {
  const auto path = path_of_program(candidate.program);
  if (path.empty()) return {};
  std::vector<std::string> command = {path};
  command.insert(command.end(), candidate.options.begin(), candidate.options.end());
  auto compiler = ask_version(command, complaints);
  if (!compiler.found()) return {};
  const auto trial = compile_cpu_image(compiler, small_kernel());
  if (trial.ok) return compiler;
  if (trial.transient)
    hindered = fmt::format("the C++ compiler {} ({}) cannot work now: {}", path, compiler.description, first_line(trial.log));
  complaints += fmt::format("; {} ({}) does not build a small kernel: {}", path, compiler.description, first_line(trial.log));
  return {};
}

SystemCompiler search(const std::string& machine) {
  std::string names, complaints, hindered;
  for (const auto& candidate : candidates_for(machine)) {
    if (auto compiler = judge(candidate, complaints, hindered); compiler.found()) return compiler;
    names += fmt::format("{}{}", names.empty() ? "" : ", ",
                         fmt::join(std::vector{candidate.program, fmt::format("{}", fmt::join(candidate.options, " "))},
                                   candidate.options.empty() ? "" : " "));
  }
  SystemCompiler none;
  none.hindered = !hindered.empty();
  none.why_not = hindered;
  if (none.hindered) return none;
  const bool own = machine.empty() || machine == cpu_machine();
  none.why_not = fmt::format("no C++ compiler{}: looked for {} on PATH{}", own ? "" : " for " + machine, names, complaints);
  return none;
}

}  // namespace

std::shared_ptr<const SystemCompiler> system_compiler(const std::string& machine) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::array<std::string, 3>, std::shared_ptr<const SystemCompiler>>;
  const std::lock_guard lock(mutex);
  auto& compiler = known[{machine, environment_variable("CXX"), environment_variable("PATH")}];
  if (!compiler || compiler->hindered) compiler = std::make_shared<SystemCompiler>(search(machine));
  return compiler;
}

}  // namespace ejk
