// libnvrtc, NVIDIA's run-time compiler: found at run time, with its builtins loaded by path, since the loader need not find those.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace ejk::cuda {

using Program = struct ProgramObject*;

// Results of NVRTC that say nothing of the source: another try may do better.
enum NvrtcResult : int {
  nvrtc_success = 0,
  nvrtc_out_of_memory = 1,
  nvrtc_program_creation_failure = 2,
  nvrtc_builtin_operation_failure = 7,
  nvrtc_internal_error = 11
};

struct NvrtcFunctions {
  int (*version)(int*, int*) = nullptr;
  int (*arch_count)(int*) = nullptr;
  int (*archs)(int*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*create)(Program*, const char* source, const char* name, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*binary_size)(Program, std::size_t*) = nullptr;
  int (*binary)(Program, char*) = nullptr;
};

struct Nvrtc {
  NvrtcFunctions call;
  std::string path;         // of the library that was loaded
  std::string why_not;      // if none is usable: what was looked for, what is wrong with it
  std::string description;  // "NVRTC 13.0"
  std::vector<int> archs;   // SM numbers it compiles for
  bool caches = false;      // from 12.9 on it keeps its results in the driver's cache, unless told not to
  bool found() const { return !path.empty() && why_not.empty(); }
};

// Another toolkit to look in; before the first question for NVRTC.
void add_toolkit(const std::string& path);
// In order: $CUDA_HOME and $CUDA_PATH, the loader's own path, toolkits added, /usr/local/cuda and /usr/local/cuda-<version>, the newest
// first.
std::vector<std::string> nvrtc_candidates();
// The first that loads and has every function. It stays loaded.
Nvrtc load_nvrtc(const std::vector<std::string>& candidates);
// That of this process, looked for once.
const Nvrtc& nvrtc();

}  // namespace ejk::cuda
