// Measuring: the configs of a call, or anything else.
//
// A spec's kernel is measured in a child process, the `ejk` program, on random data of the call's shapes (made by the rules that the
// spec's tests use): the caller's tensors are not touched, and a config that faults, hangs, spoils memory or computes wrong numbers is
// counted as rejected while the caller lives. A kernel that a user derived in plain C++ is measured in this process, on copies of the
// tensors: nothing protects the process from it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ejk/tuning.hpp"

namespace ejk {

struct AutotuneOptions {
  double budget_seconds = 60;  // for each call
  double step_seconds = 10;    // most time for one check or sample of a config; what takes longer counts as hung
  int jobs = 0;                // compilers at a time; 0: one a core
  std::uint64_t seed = 1;      // of the random data
  std::string worker = {};     // path of the ejk program; empty: looked for beside this program and library
  bool cost_model = true;      // configs that can fill far less of the machine than others of their variant are not tried
};

// The fastest right config of the call, with its evidence. It is the heuristic's choice unless another one wins beyond the noise. Nothing
// is remembered: that is the config chain's to do, or the caller's (PersistentCache).
// Errors: bad_input, unsupported: the call is not legal; device: the default config itself fails; internal: no worker program.
EJK_API Result<TuningRecord> autotune(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                                      const std::map<std::string, Value>& attributes = {}, const AutotuneOptions& options = {});
EJK_API Result<TuningRecord> autotune(const Kernel& kernel, const Invocation& invocation, const AutotuneOptions& options = {});

// Every call of a file of JSON lines as recordings write them (Invocation::key(), other fields ignored; a call that comes again is tuned
// once), in order. Calls of other devices than this machine's are passed over. An error names the line.
EJK_API Result<std::vector<TuningRecord>> autotune_recorded(const std::string& file, const AutotuneOptions& options = {});

// What the config chain asks: autotune with these options, one call at a time.
EJK_API std::shared_ptr<Tuner> make_tuner(const AutotuneOptions& options = {});

struct BenchmarkOptions {
  double seconds = 0.5;  // of work
  Device device = {};    // where fn's work runs: on a device with a clock of its own that clock counts
  Stream stream = {};    // of the device, that fn puts its work on
  bool cold = false;     // a device's caches are flushed before each sample
};

struct Measurement {
  std::vector<double> samples_us;  // of one call of fn, in the order measured
  double median_us = 0;
  double noise = 0;   // half the distance between the quartiles over the median
  int batch = 1;      // calls a sample
  std::string clock;  // "host", "cuda:0"
};

// Times fn: warmed up, short calls in batches. What fn throws becomes an error.
EJK_API Result<Measurement> benchmark(const std::function<void()>& fn, const BenchmarkOptions& options = {});

}  // namespace ejk
