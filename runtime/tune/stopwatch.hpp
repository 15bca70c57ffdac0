// Timing several things in turn: each round times every one of them once, so that what changes on the machine hits all alike.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace ejk {

struct Timed {
  std::function<void()> run;              // what is timed
  std::function<void()> prepare;          // before each sample, untimed: other inputs, a rest; may be empty
  bool warm_up = true;                    // an untimed run right before each sample
  int batch = 1;                          // runs a sample, set by calibrate()
  std::function<double(int)> clock = {};  // seconds of so many runs by a clock of its own, in place of `run`; may be empty
  std::vector<double> samples = {};       // seconds of one run
};

// Warms up and sets the batch: short runs are timed in batches, but those that need other inputs each time. The seconds of a round.
double calibrate(Timed& timed);
// One sample, prepared and warmed up as `timed` says: seconds of one run.
double sample(Timed& timed);

// Rounds until each has had `seconds` of work, but at least five and at most a thousand. progress(round) may be empty.
void measure(std::vector<Timed*> timed, double seconds, const std::function<void(int round)>& progress);

double median(std::vector<double> values);
double least(const std::vector<double>& values);
// Half the distance between the quartiles over the median: how noisy the samples are.
double spread(std::vector<double> values);

}  // namespace ejk
