// The last rounds of a search: the finalists and the default in turn, freshly measured. Who wins is decided on these alone.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "tune/outcome.hpp"

namespace ejk {

struct FinalInput {
  std::vector<Trial*> field;                            // without the default, best first; may be empty
  std::function<double()> sample_default;               // us
  std::function<std::optional<double>(Trial&)> sample;  // us; nullopt: it failed, and is rejected
  std::function<double()> seconds_left;                 // of the budget
  std::function<void(int round)> tell;
  double default_us = 0;  // of one run, roughly
  double grace = 0;       // seconds past the budget that a decision may take
};

struct FinalResult {
  Trial* winner = nullptr;                     // null: the default stays
  double ratio = 1;                            // of the winner's time to the default's
  double noise = 0;                            // of a round's ratio; without finalists, of the default's samples
  std::vector<double> samples_us, default_us;  // the winner's (the default's, if it stays) and the default's, one a round
};
FinalResult final_rounds(const FinalInput& input);

// What fifteen rounds of a full field take, roughly.
double usual_final_seconds(double default_us);
inline constexpr std::size_t most_finalists = 3, worth_recording = 3;  // finalists; rounds, with fewer nothing is known

}  // namespace ejk
