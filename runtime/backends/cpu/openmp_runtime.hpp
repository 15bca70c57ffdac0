// The OpenMP runtime that the program computes with, found among the objects that the process has loaded; nothing is loaded or linked for
// it.
#pragma once
#include <string>

namespace ejk {

struct OpenMpRuntime {
  std::string library;  // the file that has it
  std::string user;     // for whose sake it counts: "libtorch_cpu.so", "the program", "libopenblas.so.0"
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags) = nullptr;  // GOMP_parallel
  bool survives_fork = false;
  int (*max_threads)() = nullptr;
  int (*threads)() = nullptr;  // of the team that the caller is in
  int (*index)() = nullptr;
  int (*active_level)() = nullptr;
  int (*max_active_levels)() = nullptr;
};

// Which one counts: that of PyTorch, if it is loaded; else that of the program's global scope (a program compiled with -fopenmp, or one
// that was preloaded); else that of the BLAS which NumPy calls, if it works on OpenMP. A runtime that another library brought for itself
// is not the program's: our work would wake threads that nothing else uses. libgomp's threads do not survive a fork, and a region would
// wait for them for ever: where one was there at the fork, none counts in the child (LLVM's and Intel's start anew there).
// nullptr: there is none. It lives for ever. New objects are looked for every few milliseconds at most; no lock of ours is waited for.
const OpenMpRuntime* openmp_runtime();

}  // namespace ejk
