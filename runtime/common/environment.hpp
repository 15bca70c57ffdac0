// The environment variables ejk reads, all of them, in one table. Read once, when the library is first used; a value that is not
// legal is an error of the call that needed it, never a silent default.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ejk/library.hpp"
#include "ejk/policy.hpp"

namespace ejk {

struct Environment {
  Jit jit = Jit::on;            // EJKERNEL_JIT: on, off, background
  bool log = false;             // EJKERNEL_LOG: off, on: a line to stderr for each compile, load from elsewhere and fallback
  bool log_autotune = false;    // EJKERNEL_LOG_AUTOTUNE: off, on: a line to stderr for each tuning
  AutotunePolicy policy;        // EJKERNEL_AUTOTUNE_POLICY: heuristics, autotune
  std::string stamp = "none";   // EJKERNEL_OPS_STAMP: none, hash, json: how launches are labelled
  std::string record;           // EJKERNEL_OPS_RECORD: a file that calls are recorded in; empty: none
  std::string agreement;        // EJKERNEL_AGREEMENT: a folder by which the processes of one job agree on tuned configs; empty: none
  int agreement_seconds = 600;  // EJKERNEL_AGREEMENT_TIMEOUT: how long one process waits for another's measurement
  std::int64_t smem_limit = 0;  // EJKERNEL_SMEM_LIMIT: bytes of shared memory a GPU config may use; 0: what the device has
  bool check = false;  // EJKERNEL_CHECK: off, on: look for NaN in the outputs of calls on host tensors, read data on devices to judge it
  std::vector<std::string> trust;   // EJKERNEL_TRUST: folders that are used whoever can write there (store/trust.hpp reads it)
  std::vector<std::string> stores;  // EJKERNEL_STORE: folders separated by ':'
  std::string cache_dir;            // EJKERNEL_CACHE_DIR: the user cache; by default $XDG_CACHE_HOME/ejk or ~/.cache/ejk
  std::int64_t plan_bytes = std::int64_t{64} << 20;  // EJKERNEL_PLAN_MEMORY: what the plans of all shapes seen may take
  int threads = 0;                                   // EJKERNEL_THREADS: threads for CPU work; 0: as many as the process may use
  bool own_executor = false;  // EJKERNEL_EXECUTOR: auto, own: our own threads do CPU work also where the program has some
};

struct EnvironmentVariable {
  const char* name;
  const char* legal;
  const char* doc;
};
const std::vector<EnvironmentVariable>& environment_table();

// Throws spec::CallError(bad_input) naming the variable, the value found and the legal ones.
Environment read_environment();

// A line to stderr if EJKERNEL_LOG_AUTOTUNE=on.
void log_autotune(const std::string& line);

}  // namespace ejk
