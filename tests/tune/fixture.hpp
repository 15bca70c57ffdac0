// The kernel `trap` of tests/tune/data, whose configs fault, hang, spoil memory or are wrong, and what a tuner must say of each.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ejk/autotune.hpp"
#include "tune/recorded_call.hpp"
#include "tune/search.hpp"
#include "tune/worker_lab.hpp"

namespace ejk {

// A call of `trap` on a platform of this machine, as an invocation's key.
inline nlohmann::json trap_call(const std::string& platform, std::int64_t n = 1000) {
  std::string device;
  for (const auto& machine : Library::instance().parts().machines)
    if (device.empty() && machine.probe.available && machine.backend->platform() == platform) device = machine.probe.fingerprint;
  return {{"kernel", "trap"},
          {"device", device},
          {"tensors", {{"x", {"f32", {n}}}, {"out", {"f32", {n}}}}},
          {"attributes", nlohmann::json::object()}};
}

inline TuningOutcome tune_trap(const nlohmann::json& key, const std::string& worker, double seconds, double step,
                               const SearchHooks& hooks = {}) {
  const RecordedCall call(key);
  const auto images = images_of(call.kernel(), call.invocation());
  WorkerLab lab(worker, {call.invocation().key(), {call.machine().backend->device_type(), call.machine().device}});
  return search(*call.kernel().kernel_interface(), call.invocation(), lab, *images, {seconds, step, 2}, hooks);
}

inline std::int64_t deed_of(const Config& config) { return std::get<std::int64_t>(config.values.at("deed")); }

inline const Trial& trial_of(const TuningOutcome& outcome, std::int64_t deed) {
  return *std::find_if(outcome.trials.begin(), outcome.trials.end(), [&](const Trial& t) { return deed_of(t.config) == deed; });
}

// fault: words of the reason of the config that touches memory that is not there; step: the limit of the one that never ends ("": any).
inline void expect_traps_told(const TuningOutcome& outcome, const std::string& fault, const std::string& step) {
  const auto expect = [&](std::int64_t deed, const std::string& reason) {
    EXPECT_EQ(trial_of(outcome, deed).state, Trial::State::rejected) << deed;
    EXPECT_NE(trial_of(outcome, deed).reason.find(reason), std::string::npos) << deed << ": " << trial_of(outcome, deed).reason;
  };
  ASSERT_EQ(outcome.trials.size(), 8u) << outcome.stopped;
  expect(2, fault);
  expect(3, "no answer within " + step);
  expect(4, "memory beside its elements was written");
  expect(5, "is over the tolerance");
  expect(7, "it changed an input");
  EXPECT_EQ(trial_of(outcome, 0).state, Trial::State::measured);
  EXPECT_EQ(trial_of(outcome, 1).state, Trial::State::measured) << trial_of(outcome, 1).reason;
  EXPECT_EQ(trial_of(outcome, 6).state, Trial::State::slow) << "right, and far slower: " << trial_of(outcome, 6).reason;
  EXPECT_EQ(deed_of(outcome.record.config), 1);
  EXPECT_EQ(deed_of(outcome.record.baseline), 0);
  EXPECT_LT(outcome.record.median_us, outcome.record.baseline_us);
  EXPECT_EQ(outcome.record.rejected, 5);
}

}  // namespace ejk
