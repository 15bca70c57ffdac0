// What tuning one call leaves behind: the record, and every config that was looked at.
#pragma once
#include <string>
#include <vector>

#include "ejk/tuning.hpp"
#include "tune/lab.hpp"

namespace ejk {

struct Trial {
  enum class State {
    waiting,   // not looked at: the budget ended before
    rejected,  // faulted, hung, was wrong, was above its limits, or could not be built
    slow,      // right, but dropped early
    pruned,    // by the cost model: neither checked nor timed
    measured
  };
  Config config;
  std::string image, source;  // id, hash of its source; empty for kernels without a spec
  State state = State::waiting;
  std::string reason;  // rejected, slow, pruned: why
  double residual = 0;
  std::vector<double> samples_us;  // in the order measured
  std::vector<double> ratios;      // of each sample to the default's in the same round
  double found_at = 0;             // seconds after the start
  double predicted = 0;            // part of the machine that the cost model says it can fill; 0: no model
};
std::string_view name_of(Trial::State state);
std::size_t pruned_of(const std::vector<Trial>& trials);

struct BestSoFar {
  double seconds = 0;  // after the start
  double ratio = 1;    // to the default
};

struct TuningOutcome {
  TuningRecord record;
  LabCall call;
  std::size_t space = 0;      // configs that are valid for the call
  std::vector<Trial> trials;  // the default first, then in the order looked at, then the pruned; those never looked at are left out
  std::vector<BestSoFar> progress;
  double ratio = 1;  // winner over default, in the rounds of the final; 1 if the default stays
  double seconds = 0;
  std::string stopped;  // why the search ended
};

}  // namespace ejk
