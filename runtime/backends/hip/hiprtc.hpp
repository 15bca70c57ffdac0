// hipRTC, HIP's run-time compiler, where clang is not: a library of its own, or a part of libamdhip64 in older releases.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace ejk::hip {

using Program = struct ProgramObject*;

struct HiprtcFunctions {
  const char* (*error_text)(int) = nullptr;
  int (*create)(Program*, const char* source, const char* name, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*binary_size)(Program, std::size_t*) = nullptr;
  int (*binary)(Program, char*) = nullptr;
};

struct Hiprtc {
  HiprtcFunctions call;
  std::string path;                // of the library that was loaded
  std::string why_not;             // if none is usable: what was looked for, what is wrong with it
  std::string description;         // "hipRTC of HIP 5.2"
  std::vector<std::string> archs;  // it may be asked for
  bool found() const { return !path.empty() && why_not.empty(); }
};

std::vector<std::string> hiprtc_candidates();
// The first that loads and has every function. It stays loaded.
Hiprtc load_hiprtc(const std::vector<std::string>& candidates);
// That of this process, looked for once.
const Hiprtc& hiprtc();

// Archs that the hipRTC of a release of HIP (50200: 5.2) is known to compile for. Another one may end the process: the old code-object
// manager frees what it does not own when it does not know the arch.
std::vector<std::string> known_archs(int release);

// Same source and library, same bytes. Thread-safe. Never asks for an arch that is not among hiprtc.archs.
CompileResult compile_with_hiprtc(const Hiprtc& hiprtc, const spec::Image& image);

}  // namespace ejk::hip
