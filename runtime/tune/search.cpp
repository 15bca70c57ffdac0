// The search: explore, then the final.
#include "tune/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "execute/guard.hpp"
#include "tune/paired.hpp"
#include "tune/space.hpp"
#include "tune/stopwatch.hpp"

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
using State = Trial::State;

constexpr int scout_rounds = 5, least_final_rounds = 7, most_final_rounds = 31;
constexpr std::size_t finalists = 3, kept_alternatives = 5;
constexpr double longest_final = 20, most_samples_a_round = 7;
constexpr double hopeless_once = 3;       // one run takes that many times the default's: not timed at all
constexpr double hopeless = 1.5;          // times the best's ratio, in both of the first two rounds
constexpr double worth_a_final = 1.05;    // ratio to the default
constexpr double better = 0.998;          // times the best's ratio: moves the neighbourhood
constexpr std::size_t small_space = 64;   // searched as a whole if the budget allows
constexpr std::size_t most_in_vain = 48;  // configs without a better one, in a larger space
constexpr double least_open_seconds = 60, least_step_seconds = 2;
constexpr double patience = 20, fair_to_all = 5;  // times what the default took

class Search {
 public:
  Search(const Kernel& kernel, const Invocation& invocation, Lab& lab, TrialImages& images, const SearchOptions& options,
         const SearchHooks& hooks)
      : invocation_(invocation), lab_(lab), images_(images), options_(options), hooks_(hooks) {
    auto heuristic = kernel.heuristic_cfg(invocation);
    if (!heuristic) throw CodedError(heuristic.error().code, heuristic.error().message);
    auto space = kernel.config_space(invocation);
    std::erase(space, *heuristic);
    trials_.push_back(std::make_unique<Trial>(Trial{std::move(*heuristic), {}, {}, State::waiting, {}, 0, {}, {}, 0}));
    for (auto& config : space)
      trials_.push_back(std::make_unique<Trial>(Trial{std::move(config), {}, {}, State::waiting, {}, 0, {}, {}, 0}));
    std::vector<Config> all;
    for (const auto& trial : trials_) all.push_back(trial->config);
    order_ = std::make_unique<ConfigOrder>(all);
    best_ = default_ = trials_.front().get();
    for (std::size_t i = 1; i < trials_.size(); ++i) waiting_.push_back(trials_[i].get());
  }

  TuningOutcome run() {
    open();
    explore();
    if (looked_at_.size() == 1 && trials_.size() > 1)
      throw CodedError(
          ErrorCode::unsupported,
          fmt::format("the budget of {:.3g} s was spent before a config beside the default was looked at: making the call's data and "
                      "measuring the default took {:.3g} s",
                      options_.seconds, elapsed()));
    final();
    return outcome();
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double left() const { return options_.seconds - elapsed(); }

  void tell(std::string step) {
    if (hooks_.progress) hooks_.progress({looked_at_.size(), trials_.size(), elapsed(), options_.seconds, best_ratio_, std::move(step)});
  }

  // A step may take what the default's took many times over; as the budget ends, a few times over: no config is to blame for that end.
  double step_limit() const {
    const double fair = std::clamp(patience * default_step_, std::min(least_step_seconds, options_.step_seconds), options_.step_seconds);
    const double least = std::max(std::min(0.5, options_.step_seconds), fair_to_all * default_step_);
    return std::max(least, std::min(fair, left() + 0.05 * options_.seconds));
  }

  void open() {
    tell("the default: " + to_json(default_->config));
    images_.prepare({default_}, 1);
    if (default_->state == State::rejected)
      throw CodedError(ErrorCode::missing_image,
                       fmt::format("the default config {} cannot be measured: {}", to_json(default_->config), default_->reason));
    call_ = lab_.open(default_->config, std::max(least_open_seconds, options_.seconds));
    const auto before = elapsed();
    const auto checked = lab_.check(default_->config, std::max(least_open_seconds, options_.seconds));
    if (!checked.reason.empty())
      throw CodedError(ErrorCode::device, fmt::format("the default config {} is wrong: {}", to_json(default_->config), checked.reason));
    default_step_ = elapsed() - before;
    default_->residual = checked.residual;
    default_once_ = checked.once_us;
    default_->state = State::measured;
    default_->found_at = elapsed();
    looked_at_.push_back(default_);
    progress_.push_back({elapsed(), 1});
  }

  // ---- explore ----

  void explore() {
    const auto jobs = static_cast<std::size_t>(options_.jobs > 0 ? options_.jobs : std::max(1u, std::thread::hardware_concurrency()));
    double longest_batch = 0;
    while (!waiting_.empty()) {
      if (left() - longest_batch < final_seconds()) {
        stopped_ = fmt::format("the budget of {:.3g} s was spent", options_.seconds);
        return;
      }
      if (trials_.size() > small_space && in_vain_ >= most_in_vain) {
        stopped_ = fmt::format("the last {} configs, the nearest to the best, were no better", in_vain_);
        return;
      }
      const auto before = elapsed();
      try_batch(next(jobs));
      longest_batch = std::max(longest_batch, elapsed() - before);
    }
    stopped_ = "all configs were looked at";
  }

  // The nearest to the best.
  std::vector<Trial*> next(std::size_t count) {
    std::stable_sort(waiting_.begin(), waiting_.end(), [&](const Trial* a, const Trial* b) {
      return order_->distance(a->config, best_->config) < order_->distance(b->config, best_->config);
    });
    count = std::min(count, waiting_.size());
    std::vector<Trial*> batch(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    return batch;
  }

  void try_batch(const std::vector<Trial*>& batch) {
    std::vector<Trial*> fresh, right;
    for (auto* trial : batch) {
      looked_at_.push_back(trial);
      if (hooks_.known && hooks_.known(*trial))
        note(*trial);
      else
        fresh.push_back(trial);
    }
    tell(fmt::format("compiling {} configs", fresh.size()));
    images_.prepare(fresh, options_.jobs);
    for (auto* trial : fresh) {
      if (trial->state == State::rejected) continue;
      if (left() < default_step_) {  // no time to look at it
        std::erase(looked_at_, trial);
        continue;
      }
      check(*trial);
      if (trial->state == State::waiting) right.push_back(trial);
    }
    std::erase_if(fresh, [&](Trial* trial) { return std::find(looked_at_.begin(), looked_at_.end(), trial) == looked_at_.end(); });
    scout(right);
    for (auto* trial : fresh) {
      if (trial->state == State::waiting) trial->state = State::measured;
      note(*trial);
      if (hooks_.finished) hooks_.finished(*trial);
    }
  }

  void check(Trial& trial) {
    tell("checking " + to_json(trial.config));
    const auto checked = lab_.check(trial.config, step_limit());
    trial.residual = checked.residual;
    if (!checked.reason.empty()) return reject(trial, checked.reason);
    if (default_once_ > 0 && checked.once_us > hopeless_once * default_once_) {
      trial.state = State::slow;
      trial.reason = fmt::format("one run took {:.4g} us, the default's {:.4g}", checked.once_us, default_once_);
    }
  }

  static void reject(Trial& trial, const std::string& reason) {
    trial.state = State::rejected;
    trial.reason = reason;
  }

  // A few rounds beside the default; clearly slower ones leave early.
  void scout(std::vector<Trial*> candidates) {
    for (int round = 0; round < scout_rounds && !candidates.empty(); ++round) {
      if (round > 0 && left() < 0) break;
      tell(fmt::format("timing {} configs, round {}", candidates.size(), round + 1));
      const double base = sample_default();
      for (auto* trial : candidates) {
        const auto us = sample(*trial);
        if (us) trial->ratios.push_back(*us / base);
      }
      std::erase_if(candidates, [&](Trial* trial) {
        if (trial->state == State::rejected) return true;
        if (round != 1 || least(trial->ratios) < hopeless * best_ratio_) return false;
        trial->state = State::slow;
        trial->reason = fmt::format("{:.3g} times the default after two rounds, the best {:.3g}", median(trial->ratios), best_ratio_);
        return true;
      });
    }
  }

  double sample_default() {
    // It is known to work: only what takes far longer than before hangs.
    const auto sampled = lab_.sample(default_->config, std::max(options_.step_seconds, patience * default_step_));
    if (!sampled.reason.empty())
      throw CodedError(ErrorCode::device,
                       fmt::format("the default config {} failed while it was timed: {}", to_json(default_->config), sampled.reason));
    default_->samples_us.push_back(sampled.us);
    return sampled.us;
  }

  std::optional<double> sample(Trial& trial) {
    const auto sampled = lab_.sample(trial.config, step_limit());
    if (!sampled.reason.empty()) {
      reject(trial, sampled.reason);
      return std::nullopt;
    }
    trial.samples_us.push_back(sampled.us);
    return sampled.us;
  }

  void note(Trial& trial) {
    if (trial.found_at == 0) trial.found_at = elapsed();
    ++in_vain_;
    if (trial.state != State::measured || trial.ratios.empty()) return;
    if (const double ratio = median(trial.ratios); ratio < better * best_ratio_) {
      best_ = &trial;
      best_ratio_ = ratio;
      in_vain_ = 0;
      progress_.push_back({elapsed(), ratio});
    }
  }

  // ---- the final ----

  // What fifteen rounds of the finalists and the default take, within reason.
  double final_seconds() const {
    const double a_round = default_->samples_us.empty() ? default_once_ : median(default_->samples_us);
    const double estimate = 15.0 * (finalists + 1) * std::max(2.5 * a_round * 1e-6, 1e-3);
    return std::clamp(estimate, 0.05 * options_.seconds, 0.4 * options_.seconds);
  }

  struct Finalist {
    Trial* trial;
    std::vector<double> samples;  // of the final alone
    bool out = false;
  };

  void final() {
    std::vector<Trial*> measured;
    for (auto* trial : looked_at_)
      if (trial != default_ && trial->state == State::measured && !trial->ratios.empty() && median(trial->ratios) < worth_a_final)
        measured.push_back(trial);
    std::stable_sort(measured.begin(), measured.end(),
                     [](const Trial* a, const Trial* b) { return median(a->ratios) < median(b->ratios); });
    if (measured.size() > finalists) measured.resize(finalists);
    std::vector<Finalist> field;
    for (auto* trial : measured) field.push_back({trial, {}, false});
    std::vector<double> base;
    const int rounds = field.empty() ? least_final_rounds : most_final_rounds;
    samples_a_round_ = samples_that_fit(field.size() + 1);
    for (int round = 0; round < rounds && (round < least_final_rounds || left() > 0); ++round) {
      if (left() < -0.08 * options_.seconds && round > 0) break;  // what is decided on too few rounds stays the default's
      tell(fmt::format("final, round {}", round + 1));
      final_round(field, base, round % 2 == 1);
      drop_losers(field);
    }
    decide(field, base);
  }

  // Time that is left makes the rounds longer, and so quieter, once there are enough of them.
  int samples_that_fit(std::size_t configs) const {
    const double a_sample =
        std::max(2.5e-6 * median(default_->samples_us.empty() ? std::vector<double>{default_once_} : default_->samples_us), 1e-3);
    const double a_round = a_sample * static_cast<double>(configs);
    return static_cast<int>(std::clamp(std::min(left(), longest_final) / (a_round * most_final_rounds), 1.0, most_samples_a_round));
  }

  // Of a config in one round of the final.
  template <class Take>
  static std::optional<double> several(int count, const Take& take) {
    std::vector<double> samples;
    for (int i = 0; i < count; ++i) {
      const std::optional<double> one = take();
      if (!one) return one;
      samples.push_back(*one);
    }
    return median(samples);
  }

  // Every second round goes backwards: what it costs to come first or last hits all alike.
  void final_round(std::vector<Finalist>& field, std::vector<double>& base, bool backwards) {
    const auto take_default = [&] { base.push_back(*several(samples_a_round_, [&] { return std::optional(sample_default()); })); };
    if (!backwards) take_default();
    for (std::size_t i = 0; i < field.size(); ++i) {
      auto& one = field[backwards ? field.size() - 1 - i : i];
      if (one.out) continue;
      if (const auto us = several(samples_a_round_, [&] { return sample(*one.trial); }))
        one.samples.push_back(*us);
      else
        one.out = true;
    }
    if (backwards) take_default();
    for (auto& one : field)
      if (!one.out) one.trial->ratios.push_back(one.samples.back() / base.back());
  }

  static Finalist* leader(std::vector<Finalist>& field) {
    Finalist* first = nullptr;
    for (auto& one : field)
      if (!one.out && (!first || median(one.samples) < median(first->samples))) first = &one;
    return first;
  }

  static void drop_losers(std::vector<Finalist>& field) {
    const auto* first = leader(field);
    for (auto& one : field)
      if (first && &one != first && !one.out) one.out = median_interval(paired_ratios(one.samples, first->samples)).low > 1;
  }

  void decide(std::vector<Finalist>& field, const std::vector<double>& base) {
    auto* first = leader(field);
    const auto verdict = judge_challenger(first ? paired_ratios(first->samples, base) : std::vector<double>());
    const bool wins = first && verdict.wins;
    winner_ = wins ? first->trial : default_;
    ratio_ = wins ? verdict.ratio : 1;
    auto& record = record_;
    record.samples_us = wins ? first->samples : base;
    record.noise = first ? verdict.noise : spread(base);
    record.baseline_us = median(base);
    if (wins) progress_.push_back({elapsed(), ratio_});
  }

  // The best of the others that were timed, at the time the default took in the final.
  std::vector<std::pair<Config, double>> alternatives() const {
    std::vector<std::pair<Config, double>> others;
    for (const auto* trial : looked_at_)
      if (trial != winner_ && !trial->samples_us.empty() && trial->state != State::rejected)
        others.emplace_back(trial->config, trial == default_ ? record_.baseline_us : median(trial->ratios) * record_.baseline_us);
    std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (others.size() > kept_alternatives) others.resize(kept_alternatives);
    return others;
  }

  TuningOutcome outcome() {
    TuningOutcome result;
    record_.key = invocation_.key();
    record_.config = winner_->config;
    record_.source = winner_->source;
    record_.median_us = median(record_.samples_us);
    record_.baseline = default_->config;
    record_.checked_against = call_.checked_against;
    record_.residual = winner_->residual;
    record_.machine = call_.machine;
    record_.version = EJK_VERSION;
    record_.alternatives = alternatives();
    for (const auto* trial : looked_at_) {
      record_.measured += !trial->samples_us.empty();
      record_.rejected += trial->state == State::rejected;
      result.trials.push_back(*trial);
    }
    result.record = std::move(record_);
    result.call = std::move(call_);
    result.space = trials_.size();
    result.progress = std::move(progress_);
    result.ratio = ratio_;
    result.seconds = elapsed();
    result.stopped = std::move(stopped_);
    return result;
  }

  const Invocation& invocation_;
  Lab& lab_;
  TrialImages& images_;
  const SearchOptions& options_;
  const SearchHooks& hooks_;
  const Clock::time_point start_ = Clock::now();
  std::vector<std::unique_ptr<Trial>> trials_;  // the default first
  std::unique_ptr<ConfigOrder> order_;
  std::vector<Trial*> waiting_, looked_at_;
  Trial *default_, *best_, *winner_ = nullptr;
  LabCall call_;
  TuningRecord record_;
  std::vector<BestSoFar> progress_;
  std::string stopped_;
  double default_once_ = 0, default_step_ = 0, best_ratio_ = 1, ratio_ = 1;
  std::size_t in_vain_ = 0;
  int samples_a_round_ = 1;
};

}  // namespace

std::string_view name_of(Trial::State state) {
  static constexpr std::string_view names[] = {"waiting", "rejected", "slow", "measured"};
  return names[static_cast<std::size_t>(state)];
}

TuningOutcome search(const Kernel& kernel, const Invocation& invocation, Lab& lab, TrialImages& images, const SearchOptions& options,
                     const SearchHooks& hooks) {
  return Search(kernel, invocation, lab, images, options, hooks).run();
}

}  // namespace ejk
