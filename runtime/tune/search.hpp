// Finds the fastest right config of one call within a budget of seconds.
//
// The default, which is the heuristic's choice, is measured in every round. Candidates are taken in order of their distance to the best
// one known (so a small space is searched as a whole, a large one as a neighbourhood that moves), at equal distance the one that can fill
// more of the machine first (cost_model.hpp), those that can fill far less than others never. A batch at a time: images are built in
// parallel, each result is checked, and those that are right get a few rounds beside the default, where those that are clearly slower
// drop out. The best few then meet the default in fresh rounds; only these decide whether one replaces it (judge_challenger).
#pragma once
#include <functional>

#include "tune/images.hpp"
#include "tune/lab.hpp"
#include "tune/outcome.hpp"

namespace ejk {

struct SearchOptions {
  double seconds = 60;       // for the call, all in all
  double step_seconds = 10;  // most time for one check or sample of a config; what takes longer hangs
  int jobs = 0;              // compilers at a time; 0: one a core
  bool cost_model = true;    // prunes and orders candidates; the default is never pruned
};

struct SearchProgress {
  std::size_t looked_at = 0, space = 0;
  double seconds = 0, of = 0;  // of the budget
  double best_ratio = 1;       // of the best config to the default
  std::string step;            // "compiling 4 configs", "checking block_c=256", "final, round 3"
};

struct SearchHooks {
  std::function<void(const SearchProgress&)> progress;  // before each step
  std::function<bool(Trial&)> known;                    // fills in what an earlier run found of the config; false: nothing
  std::function<void(const Trial&)> finished;           // a config is rejected, slow or measured; not those that are pruned
};

// Throws CodedError: no config takes the call, the default itself cannot be measured, or the lab cannot work at all.
TuningOutcome search(const Kernel& kernel, const Invocation& invocation, Lab& lab, TrialImages& images, const SearchOptions& options,
                     const SearchHooks& hooks = {});

}  // namespace ejk
