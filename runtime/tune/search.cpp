// The search: predict, explore, then the final.
#include "tune/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "common/guard.hpp"
#include "tune/final_rounds.hpp"
#include "tune/pruning.hpp"
#include "tune/space.hpp"
#include "tune/stopwatch.hpp"

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
using State = Trial::State;

constexpr int scout_rounds = 5;
constexpr std::size_t kept_alternatives = 5;
constexpr double over_budget = 0.08;
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
    trials_.push_back(std::make_unique<Trial>(Trial{std::move(*heuristic), {}, {}, State::waiting, {}, 0, {}, {}, 0, 0}));
    for (auto& config : space)
      trials_.push_back(std::make_unique<Trial>(Trial{std::move(config), {}, {}, State::waiting, {}, 0, {}, {}, 0, 0}));
    std::vector<Config> all;
    for (const auto& trial : trials_) all.push_back(trial->config);
    order_ = std::make_unique<ConfigOrder>(all);
    best_ = default_ = trials_.front().get();
    for (std::size_t i = 1; i < trials_.size(); ++i) waiting_.push_back(trials_[i].get());
  }

  TuningOutcome run() {
    open();
    prune_unbuilt();
    explore();
    if (looked_at_.size() == 1 && trials_.size() > 1 + pruned_.size())
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
    if (hooks_.progress)
      hooks_.progress({looked_at_.size() + pruned_.size(), trials_.size(), elapsed(), options_.seconds, best_ratio_, std::move(step)});
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
    prune_built({default_});
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

  // ---- the cost model ----

  // By what is known before anything but the default is built, then by the compiled resources, against those that were built by now.
  void prune_unbuilt() {
    if (!options_.cost_model) return;
    tell("predicting");
    std::vector<Trial*> all = waiting_;
    all.push_back(default_);
    leave_out(prune(all, default_, images_, best_fill_));
  }
  void prune_built(const std::vector<Trial*>& built) {
    if (options_.cost_model) leave_out(prune(built, default_, images_, best_built_));
  }
  void leave_out(const std::vector<Trial*>& pruned) {
    pruned_.insert(pruned_.end(), pruned.begin(), pruned.end());
    const auto is_pruned = [](const Trial* trial) { return trial->state == State::pruned; };
    std::erase_if(waiting_, is_pruned);
    std::erase_if(looked_at_, is_pruned);
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
      if (trials_.size() - pruned_.size() > small_space && in_vain_ >= most_in_vain) {
        stopped_ = fmt::format("the last {} configs, the nearest to the best, were no better", in_vain_);
        return;
      }
      const auto before = elapsed();
      try_batch(next(jobs));
      longest_batch = std::max(longest_batch, elapsed() - before);
    }
    stopped_ = pruned_.empty() ? "all configs were looked at" : "all configs were looked at that were not pruned";
  }

  // The nearest to the best; of those the ones that fill the machine better.
  std::vector<Trial*> next(std::size_t count) {
    const auto rank = [&](const Trial* trial) { return std::pair(order_->distance(trial->config, best_->config), -trial->predicted); };
    std::stable_sort(waiting_.begin(), waiting_.end(), [&](const Trial* a, const Trial* b) { return rank(a) < rank(b); });
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
    prune_built(fresh);
    for (auto* trial : fresh) {
      if (trial->state != State::waiting) continue;
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

  double default_us() const { return default_->samples_us.empty() ? default_once_ : median(default_->samples_us); }

  // Kept back from the search, within reason.
  double final_seconds() const { return std::clamp(usual_final_seconds(default_us()), 0.05 * options_.seconds, 0.4 * options_.seconds); }

  std::vector<Trial*> finalists() const {
    std::vector<Trial*> field;
    for (auto* trial : looked_at_)
      if (trial != default_ && trial->state == State::measured && !trial->ratios.empty() && median(trial->ratios) < worth_a_final)
        field.push_back(trial);
    std::stable_sort(field.begin(), field.end(), [](const Trial* a, const Trial* b) { return median(a->ratios) < median(b->ratios); });
    if (field.size() > most_finalists) field.resize(most_finalists);
    return field;
  }

  void final() {
    FinalInput input{finalists(), {}, {}, {}, {}, default_us(), over_budget * options_.seconds};
    input.sample_default = [this] { return sample_default(); };
    input.sample = [this](Trial& trial) { return sample(trial); };
    input.seconds_left = [this] { return left(); };
    input.tell = [this](int round) { tell(fmt::format("final, round {}", round + 1)); };
    const auto result = final_rounds(input);
    if (result.default_us.size() < worth_recording)
      throw CodedError(ErrorCode::unsupported,
                       fmt::format("the budget of {:.3g} s left no time for {} rounds of a final; a run of the default takes {:.3g} s",
                                   options_.seconds, worth_recording, default_us() * 1e-6));
    winner_ = result.winner ? result.winner : default_;
    ratio_ = result.ratio;
    record_.samples_us = result.samples_us;
    record_.noise = result.noise;
    record_.baseline_us = median(result.default_us);
    if (result.winner) progress_.push_back({elapsed(), ratio_});
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
    for (const auto* trial : pruned_) result.trials.push_back(*trial);
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
  std::vector<Trial*> waiting_, looked_at_, pruned_;
  BestFill best_fill_, best_built_;  // as planned, as compiled
  Trial *default_, *best_, *winner_ = nullptr;
  LabCall call_;
  TuningRecord record_;
  std::vector<BestSoFar> progress_;
  std::string stopped_;
  double default_once_ = 0, default_step_ = 0, best_ratio_ = 1, ratio_ = 1;
  std::size_t in_vain_ = 0;
};

}  // namespace

std::string_view name_of(Trial::State state) {
  static constexpr std::string_view names[] = {"waiting", "rejected", "slow", "pruned", "measured"};
  return names[static_cast<std::size_t>(state)];
}

std::size_t pruned_of(const std::vector<Trial>& trials) {
  return static_cast<std::size_t>(
      std::count_if(trials.begin(), trials.end(), [](const Trial& trial) { return trial.state == State::pruned; }));
}

TuningOutcome search(const Kernel& kernel, const Invocation& invocation, Lab& lab, TrialImages& images, const SearchOptions& options,
                     const SearchHooks& hooks) {
  return Search(kernel, invocation, lab, images, options, hooks).run();
}

}  // namespace ejk
