// The images of a call's configs: what they are called, whether they can be had, whether their resources allow a launch, and how well
// they can fill the machine.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "execute/library_state.hpp"
#include "tune/cost_model.hpp"
#include "tune/outcome.hpp"

namespace ejk {

class TrialImages {
 public:
  virtual ~TrialImages() = default;
  // Sets image and source of each; compiles those that no store has, up to `jobs` at a time, into the user's cache. Those that cannot
  // be built, or whose compiled resources are above their variant's limits or the device's, are rejected with the reason.
  virtual void prepare(const std::vector<Trial*>& trials, int jobs) = 0;
  // By the cost model: from the launches alone, and with the compiled resources once the trial is prepared. nullopt: it has no model.
  virtual std::optional<Fill> predict(const Trial&) const { return std::nullopt; }
};

// Of a spec's kernel; the invocation must outlive it.
std::unique_ptr<TrialImages> images_of(const KernelHandle& kernel, const Invocation& invocation);
// Of a kernel without a spec: nothing to prepare.
std::unique_ptr<TrialImages> no_images();

}  // namespace ejk
