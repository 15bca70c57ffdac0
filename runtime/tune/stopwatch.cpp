// Interleaved timing, and statistics of samples.
#include "tune/stopwatch.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int least_rounds = 5, most_rounds = 1000;
constexpr double least_sample = 200e-6;  // shorter runs are timed in batches: the clock and the first misses would count too much
constexpr double long_run = 20e-3;       // needs no untimed run before it

double seconds_of(int batch, const Timed& timed) {
  if (timed.clock) return timed.clock(batch);
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) timed.run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double calibrate(Timed& timed) {
  if (timed.prepare) timed.prepare();
  seconds_of(1, timed);
  if (timed.prepare) timed.prepare();
  const double once = std::max(seconds_of(1, timed), 1e-7);
  if (timed.warm_up && once < least_sample) timed.batch = static_cast<int>(std::ceil(least_sample / once));
  if (once > long_run) timed.warm_up = false;
  return once * (timed.batch + (timed.warm_up ? 1 : 0));
}

double sample(Timed& timed) {
  if (timed.prepare) timed.prepare();
  if (timed.warm_up) seconds_of(1, timed);
  return seconds_of(timed.batch, timed) / timed.batch;
}

void measure(std::vector<Timed*> timed, double seconds, const std::function<void(int round)>& progress) {
  double shortest = 1e30;
  for (auto* one : timed) shortest = std::min(shortest, calibrate(*one));
  const auto wanted = static_cast<int>(std::clamp(seconds / shortest, 1.0 * least_rounds, 1.0 * most_rounds));
  const double limit = seconds * static_cast<double>(timed.size());
  const auto start = Clock::now();
  for (int round = 0; round < wanted; ++round) {
    if (round >= least_rounds && std::chrono::duration<double>(Clock::now() - start).count() > limit) break;
    if (progress) progress(round);
    for (auto* one : timed) one->samples.push_back(sample(*one));
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double least(const std::vector<double>& values) { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }

double spread(std::vector<double> values) {
  if (values.size() < 4) return 0;
  std::sort(values.begin(), values.end());
  return (values[values.size() * 3 / 4] - values[values.size() / 4]) / 2 / median(values);
}

}  // namespace ejk
