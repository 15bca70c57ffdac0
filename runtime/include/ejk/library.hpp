// The process's library: where stores are, how many threads, what each call would do.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ejk/export.hpp"
#include "ejk/kernel.hpp"
#include "ejk/result.hpp"

namespace ejk {

// Puts a store in front of those found by default ($EJKERNEL_STORE, then <library or program folder>/../store and
// ../share/ejk/store). A kernel, an arch and a template are taken from the first that has them: a store of your own kernels needs nothing
// else. Add stores before the first call.
EJK_API Status add_store(const std::string& path);

// Threads for CPU work, the caller included; 0: as many as the process may use.
EJK_API Status set_threads(int threads);

// What becomes of a call whose image no store has.
enum class Jit {
  off,  // the nearest image that a store has serves it; if there is none, it is an error
  on,   // it waits until the image is compiled
  // The best image that a store has serves it, or one that is compiled sooner, while its own is compiled on another thread; later calls
  // take that. Calls with a cfg of their own, with the attribute `deterministic`, and on a stream that is being captured wait as with `on`.
  background,
};
// Of the process, from its next calls on; EJKERNEL_JIT says what holds at first.
EJK_API Status set_jit(Jit jit);

// Waits until nothing is compiled on other threads, `longest` at most. false: something still is.
EJK_API bool wait_for_images(std::chrono::milliseconds longest);

// Counters since the start, so that a test can assert "0 compiles, 0 fallbacks".
struct Counters {
  std::uint64_t plans = 0, compiles = 0, loads = 0, fallbacks = 0;
  std::uint64_t stand_ins = 0;  // plans that serve until their own image is built (Jit::background)
};
EJK_API Counters counters();

// A call by names, for callers that do not know the kernel at compile time.
EJK_API Status call(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                    const std::map<std::string, Value>& attributes, Stream stream = {}, const Config* config = nullptr);

// How a call would be carried out: JSON with variants (and the clause that refused each), tiers, image id, origin, geometry, cost.
EJK_API Result<std::string> explain(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                                    const std::map<std::string, Value>& attributes, const Config* config = nullptr);

// Kernels, archs, backends (found, or why not), stores and their counts: JSON.
EJK_API Result<std::string> info();

}  // namespace ejk
