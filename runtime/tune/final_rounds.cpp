// Rounds, drop-outs and the verdict.
#include "tune/final_rounds.hpp"

#include <algorithm>

#include "tune/paired.hpp"
#include "tune/stopwatch.hpp"

namespace ejk {
namespace {

constexpr int least_final_rounds = 7, most_final_rounds = 31, usual_rounds = 15;
constexpr double longest = 20, most_samples_a_round = 7;
constexpr double runs_a_sample = 2.5, least_final_sample = 1e-3;  // seconds; a warm-up, batches, the way to another process

double seconds_of_a_sample(double us) { return std::max(runs_a_sample * us * 1e-6, least_final_sample); }

class Final {
 public:
  explicit Final(const FinalInput& input) : input_(input) {
    // Rather few finalists than few rounds.
    const double places = input.seconds_left() / (least_final_rounds * seconds_of_a_sample(input.default_us)) - 1;
    const auto size = static_cast<std::size_t>(std::clamp(places, 1.0, static_cast<double>(most_finalists)));
    for (auto* trial : input.field)
      if (field_.size() < size) field_.push_back({trial, {}, false});
    // Time that is left makes the rounds longer, and so quieter.
    const double a_round = seconds_of_a_sample(input.default_us) * static_cast<double>(field_.size() + 1);
    samples_a_round_ =
        static_cast<int>(std::clamp(std::min(input.seconds_left(), longest) / (a_round * most_final_rounds), 1.0, most_samples_a_round));
  }

  FinalResult run() {
    const int rounds = field_.empty() ? least_final_rounds : most_final_rounds;
    for (int round = 0; round < rounds && (round < least_final_rounds || input_.seconds_left() > 0); ++round) {
      if (round > 0 && input_.seconds_left() < -input_.grace) break;  // too few rounds leave the default where it is
      input_.tell(round);
      one_round(round % 2 == 1);
      drop_losers();
    }
    return verdict();
  }

 private:
  struct Finalist {
    Trial* trial;
    std::vector<double> samples;
    bool out;
  };

  template <class Take>
  std::optional<double> several(const Take& take) const {
    std::vector<double> samples;
    for (int i = 0; i < samples_a_round_; ++i) {
      const std::optional<double> one = take();
      if (!one) return one;
      samples.push_back(*one);
    }
    return median(samples);
  }

  void take_default() {
    base_.push_back(*several([&] { return std::optional(input_.sample_default()); }));
  }

  // Every second round goes backwards: what it costs to come first or last hits all alike.
  void one_round(bool backwards) {
    if (!backwards) take_default();
    for (std::size_t i = 0; i < field_.size(); ++i) {
      auto& one = field_[backwards ? field_.size() - 1 - i : i];
      if (one.out) continue;
      const auto us = several([&] { return input_.sample(*one.trial); });
      one.out = !us;
      if (us) one.samples.push_back(*us);
    }
    if (backwards) take_default();
    for (auto& one : field_)
      if (!one.out) one.trial->ratios.push_back(one.samples.back() / base_.back());
  }

  Finalist* leader() {
    Finalist* first = nullptr;
    for (auto& one : field_)
      if (!one.out && (!first || median(one.samples) < median(first->samples))) first = &one;
    return first;
  }

  void drop_losers() {
    const auto* first = leader();
    for (auto& one : field_)
      if (first && &one != first && !one.out) one.out = median_interval(paired_ratios(one.samples, first->samples)).low > 1;
  }

  FinalResult verdict() {
    FinalResult result;
    result.samples_us = result.default_us = base_;
    result.noise = spread(base_);
    auto* first = leader();
    if (!first) return result;
    const auto judged = judge_challenger(paired_ratios(first->samples, base_));
    result.noise = judged.noise;
    // Where the machine's speed drifts, medians of rounds and of their ratios may disagree: then nothing is sure.
    if (!judged.wins || median(first->samples) >= median(base_)) return result;
    result.winner = first->trial;
    result.ratio = judged.ratio;
    result.samples_us = first->samples;
    return result;
  }

  const FinalInput& input_;
  std::vector<Finalist> field_;
  std::vector<double> base_;
  int samples_a_round_ = 1;
};

}  // namespace

FinalResult final_rounds(const FinalInput& input) { return Final(input).run(); }

double usual_final_seconds(double default_us) {
  return usual_rounds * static_cast<double>(most_finalists + 1) * seconds_of_a_sample(default_us);
}

}  // namespace ejk
