// Tuning: what a measurement leaves behind, and who makes it. A record is one JSON line; only what was measured is ever recorded.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ejk/kernel.hpp"

namespace ejk {

// The winner for one invocation key, with its evidence.
struct TuningRecord {
  std::string key;                 // Invocation::key() of Kernel::canonical(the call)
  Config config;                   // variant, arch and every value
  std::string source;              // hash of the rendered source of the winner's image; "" for kernels without a spec
  std::string code;                // hash of the winner's machine code; "" where it is not known, and in records of an older ejk
  std::vector<double> samples_us;  // of the winner, in the order measured
  double median_us = 0;
  double noise = 0;  // relative spread of a round: the winner had to beat the default by more
  Config baseline;   // what the heuristic chooses, measured in the same rounds
  double baseline_us = 0;
  std::vector<std::pair<Config, double>> alternatives;  // the best of the others that were timed and their medians in us, best first
  std::string checked_against;                          // "float64 reference", "the default config's result"
  double residual = 0;                                  // worst error in tolerances; at most 1
  std::int64_t measured = 0;                            // configs that were timed
  std::int64_t rejected = 0;                            // configs that faulted, hung, were wrong or above their limits
  std::string machine;                                  // the device in words, with driver or compiler: for people, not compared
  std::string version;                                  // of ejk
};
EJK_API std::string to_json(const TuningRecord& record);  // one line, sorted keys, the key as an object
EJK_API Result<TuningRecord> record_from_json(std::string_view line);

// Measures the configs of one invocation. The autotune tier asks it; thread-safe.
class EJK_API Tuner {
 public:
  virtual ~Tuner() = default;
  // "" or why it cannot tune here ("no worker program: looked for ..."), in a sentence for `explain`.
  virtual std::string unavailable(const Kernel& kernel, const Invocation& invocation) const = 0;
  // May take long. Never harms the caller's tensors. The invocation is canonical; its tensors may have no data (data == nullptr), as those
  // of a gradient or of a recorded call: then the tuner makes data of its own.
  virtual Result<TuningRecord> tune(const Kernel& kernel, const Invocation& invocation) = 0;
};

// The tuner that the autotune tier of every chain asks, at first make_tuner() of ejk/autotune.hpp; null: none. One thread a key asks it,
// the others wait for its answer.
EJK_API void set_tuner(std::shared_ptr<Tuner> tuner);
EJK_API std::shared_ptr<Tuner> tuner();

}  // namespace ejk
