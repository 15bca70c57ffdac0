// A compiler as a program of the system: finding it, and one source to one binary in a fresh folder under fixed names, so that the bytes
// depend on nothing else.
#pragma once
#include <string>
#include <vector>

#include "backends/backend.h"

namespace ejk {

struct SystemCompiler {
  std::vector<std::string> command;  // path and fixed options ("--target=aarch64-linux-gnu")
  std::string description;           // first line of --version
  std::string why_not;               // if none was found: what was looked for, and what was wrong with it
  bool hindered = false;             // one is there, but what it needs was missing (room on a disk): it is asked again
  bool found() const { return !command.empty(); }
};

// The path of a program: as given if it has a slash, else the first of its name on $PATH. Empty: none.
std::string path_of_program(const std::string& program);
std::string environment_variable(const char* name);  // empty: not set

// The compiler `command` starts, described by its --version; empty, with a complaint "; <path> ...", if it does not tell.
SystemCompiler ask_version(const std::vector<std::string>& command, std::string& complaints);

// Runs it with `options`, then "-o <binary_name> <source_name>". The result has no resources. Thread-safe.
CompileResult run_compiler(const SystemCompiler& compiler, const std::string& source, const std::vector<std::string>& options,
                           const std::string& source_name, const std::string& binary_name);

// This process's environment less what would change a compiler's output, with its words in English and its files in `folder`.
std::vector<std::string> compiler_environment(const std::string& folder);

}  // namespace ejk
