// The kernel `trap` of tests/tune/data, tuned with the ejk program of this build as its worker.
#pragma once
#include <algorithm>

#include "ejk/autotune.hpp"
#include "execute/store_fixture.hpp"
#include "tune/recorded_call.hpp"
#include "tune/search.hpp"
#include "tune/worker_lab.hpp"

namespace ejk {

inline std::string worker_path() { return EJK_BINARY_DIR "/bin/ejk"; }

class TrapTest : public StoreTest {
 protected:
  void SetUp() override { ASSERT_TRUE(add_store(EJK_SOURCE_DIR "/tests/tune/data")); }

  static nlohmann::json trap_call(const std::string& platform, std::int64_t n = 1000) {
    std::string device;
    for (const auto& machine : Library::instance().parts().machines)
      if (machine.probe.available && machine.backend->platform() == platform) device = machine.probe.fingerprint;
    return {{"kernel", "trap"},
            {"device", device},
            {"tensors", {{"x", {"f32", {n}}}, {"out", {"f32", {n}}}}},
            {"attributes", nlohmann::json::object()}};
  }

  static TuningOutcome tune(const nlohmann::json& key, double seconds, double step, const SearchHooks& hooks = {}) {
    const RecordedCall call(key);
    const auto images = images_of(call.kernel(), call.invocation());
    WorkerLab lab(worker_path(), {call.invocation().key(), {call.machine().backend->device_type(), call.machine().device}});
    return search(*call.kernel().kernel_interface(), call.invocation(), lab, *images, {seconds, step, 2}, hooks);
  }

  static const Trial& trial(const TuningOutcome& outcome, std::int64_t deed) {
    return *std::find_if(outcome.trials.begin(), outcome.trials.end(),
                         [&](const Trial& t) { return std::get<std::int64_t>(t.config.values.at("deed")) == deed; });
  }
};

}  // namespace ejk
