// A kernel without a spec and a tuner that measures nothing, for tests of the chain and the records.
#pragma once
#include <atomic>
#include <thread>

#include "ejk/ejk.hpp"

namespace ejk {

// run() notes the config it was given.
class Recorder : public Kernel {
 public:
  std::string name() const override { return "recorder"; }
  std::vector<Config> config_space(const Invocation&) const override { return {with(1), with(2), with(3)}; }
  Result<Config> heuristic_cfg(const Invocation&) const override { return with(1); }
  Status run(const Invocation&, const Config& config) const override {
    last = std::get<std::int64_t>(config.values.at("tile"));
    return {};
  }
  static Config with(std::int64_t tile) { return {"", "", {{"tile", tile}}}; }
  mutable std::int64_t last = 0;
};

inline Invocation invocation(std::int64_t size = 0) {
  Invocation result;
  result.kernel = "recorder";
  result.device = "cpu-test";
  if (size) result.attributes["size"] = size;
  return result;
}

inline TuningRecord measured(const std::string& key, Config config, double median = 5) {
  TuningRecord record;
  record.key = key;
  record.config = std::move(config);
  record.samples_us = {median, median, median};
  record.median_us = median;
  record.noise = 0.02;
  record.baseline = Recorder::with(1);
  record.baseline_us = 2 * median;
  record.checked_against = "float64 reference";
  record.measured = 3;
  record.machine = "test machine";
  record.version = "1";
  return record;
}

class FakeTuner : public Tuner {
 public:
  std::string unavailable(const Kernel&, const Invocation&) const override { return why_not; }
  Result<TuningRecord> tune(const Kernel& kernel, const Invocation& invocation) override {
    ++asked;
    std::this_thread::sleep_for(pause);
    if (inside) inside();
    if (!fails.empty()) return Error{ErrorCode::device, fails};
    const auto space = kernel.config_space(invocation);
    return measured(invocation.key(), config ? *config : space.back());
  }
  std::string why_not, fails;
  std::optional<Config> config;
  std::function<void()> inside;
  std::chrono::milliseconds pause{0};
  std::atomic<int> asked{0};
};

// The process's tuner while the object lives.
struct TunerScope {
  explicit TunerScope(std::shared_ptr<Tuner> tuner) { set_tuner(std::move(tuner)); }
  TunerScope(const TunerScope&) = delete;
  TunerScope& operator=(const TunerScope&) = delete;
  ~TunerScope() { set_tuner(nullptr); }
};

inline constexpr AutotunePolicy tuning{.cache_miss_fallback = CacheMissFallback::autotune};

}  // namespace ejk
