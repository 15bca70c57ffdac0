// The call that `ejk worker` tries configs on: its data, the truth, and a clock.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command_line/kernel_call.hpp"
#include "tune/device_stopwatch.hpp"
#include "tune/lab.hpp"
#include "tune/stopwatch.hpp"
#include "tune/worker_outputs.hpp"

namespace ejk::tools {

class WorkerSubject {
 public:
  // key: an Invocation's; the tensors get random data by the spec's `fill`. Throws what calls throw.
  WorkerSubject(const nlohmann::json& key, const Machine& machine, std::uint64_t seed);
  WorkerSubject(const WorkerSubject&) = delete;
  WorkerSubject& operator=(const WorkerSubject&) = delete;

  // Runs the default config and sets the truth by it, or by the reference.
  LabCall open(const std::string& baseline, bool peaks);
  OutputVerdict check(const std::string& config, double& once_us);
  double sample_us(const std::string& config);

 private:
  struct Copy {
    reference::Call call;
    std::unique_ptr<PackedCall> packed;
  };
  double run_us(const std::string& config);
  void add_copies();
  Timed make_timed(const std::string& config);
  const KernelHandle& kernel_;
  const Machine& machine_;
  std::vector<std::unique_ptr<Copy>> copies_;  // on the host, enough that each is out of the caches when its turn comes again
  std::size_t turn_ = 0;
  bool cold_ = false;
  std::unique_ptr<WorkerOutputs> outputs_;
  std::unique_ptr<DeviceStopwatch> stopwatch_;
  std::map<std::string, Timed> timed_;  // by config
};

}  // namespace ejk::tools
