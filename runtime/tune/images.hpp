// The images of a call's configs: what they are called, whether they can be had, and whether their resources allow a launch.
#pragma once
#include <memory>
#include <vector>

#include "execute/library_state.hpp"
#include "tune/outcome.hpp"

namespace ejk {

class TrialImages {
 public:
  virtual ~TrialImages() = default;
  // Sets image and source of each; compiles those that no store has, up to `jobs` at a time, into the user's cache. Those that cannot
  // be built, or whose compiled resources are above their variant's limits or the device's, are rejected with the reason.
  virtual void prepare(const std::vector<Trial*>& trials, int jobs) = 0;
};

// Of a spec's kernel; the invocation must outlive it.
std::unique_ptr<TrialImages> images_of(const KernelHandle& kernel, const Invocation& invocation);
// Of a kernel without a spec: nothing to prepare.
std::unique_ptr<TrialImages> no_images();

}  // namespace ejk
