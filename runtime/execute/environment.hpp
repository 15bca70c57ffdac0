// The environment variables ejk reads, all of them, in one table. Read once, when the library is first used; a value that is not
// legal is an error of the call that needed it, never a silent default.
#pragma once
#include <string>
#include <vector>

namespace ejk {

struct Environment {
  bool jit = true;                  // EJKERNEL_JIT: on, off
  bool log = false;                 // EJKERNEL_LOG: off, on: a line to stderr for each compile, load from elsewhere and fallback
  std::string stamp = "none";       // EJKERNEL_OPS_STAMP: none, hash, json: how launches are labelled
  std::string record;               // EJKERNEL_OPS_RECORD: a file that calls are recorded in; empty: none
  std::vector<std::string> stores;  // EJKERNEL_STORE: folders separated by ':'
  std::string cache_dir;            // EJKERNEL_CACHE_DIR: the user cache; by default $XDG_CACHE_HOME/ejk or ~/.cache/ejk
  int threads = 0;                  // EJKERNEL_THREADS: threads for CPU work; 0: as many as the process may use
};

struct EnvironmentVariable {
  const char* name;
  const char* legal;
  const char* doc;
};
const std::vector<EnvironmentVariable>& environment_table();

// Throws spec::CallError(bad_input) naming the variable, the value found and the legal ones.
Environment read_environment();

}  // namespace ejk
