// Is what a config wrote right? The outputs of one call, poisoned before each run, compared with the truth afterwards, with the guard
// zones around them and the inputs, which nobody may change.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "command_line/kernel_call.hpp"

namespace ejk::tools {

struct OutputVerdict {
  std::string wrong;     // empty: right
  double residual = 0;   // worst error in tolerances
  bool spoiled = false;  // memory beside the outputs, or an input, was changed: this process's results are worth nothing any more
};

class WorkerOutputs {
 public:
  // call and packed must outlive it.
  WorkerOutputs(const KernelHandle& kernel, reference::Call& call, const PackedCall& packed, const Machine& machine);
  ~WorkerOutputs();
  void poison();
  // Takes the float64 reference as the truth where that is affordable; else what lies in the outputs now, the default config's result.
  // Returns which.
  std::string set_truth(double seconds);
  OutputVerdict judge();

 private:
  class Output;
  std::uint64_t hash_of_inputs();
  const KernelHandle& kernel_;
  reference::Call& call_;
  const PackedCall& packed_;
  const Machine& machine_;
  std::vector<std::unique_ptr<Output>> outputs_;
  std::uint64_t inputs_ = 0;  // their hash; 0: too large to look at
};

}  // namespace ejk::tools
