// A lab in this process, for kernels that a user derived in plain C++: on copies of the call's tensors, unprotected.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "execute/library_state.hpp"
#include "tune/device_stopwatch.hpp"
#include "tune/lab.hpp"
#include "tune/stopwatch.hpp"

namespace ejk {

class LocalLab : public Lab {
 public:
  // Copies the tensors. Throws CodedError if they lie where they cannot be copied from.
  LocalLab(const Kernel& kernel, const Invocation& invocation);
  ~LocalLab() override;
  LabCall open(const Config& baseline, double seconds) override;
  Checked check(const Config& config, double seconds) override;
  Sampled sample(const Config& config, double seconds) override;

 private:
  struct Copy;
  void copy_tensors(const Invocation& invocation);
  void reset();                                // the copies hold the caller's values again
  std::vector<std::vector<std::byte>> read();  // what the copies hold now
  void run(const Config& config);
  const Kernel& kernel_;
  Invocation invocation_;  // on the copies
  const Machine* machine_ = nullptr;
  std::vector<Copy> copies_;
  std::vector<std::vector<std::byte>> truth_;
  std::unique_ptr<DeviceStopwatch> stopwatch_;
  std::map<std::string, Timed> timed_;
};

}  // namespace ejk
