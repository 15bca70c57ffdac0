// What `ejk pack` could keep: recorded calls, the images that can serve each, and what each image is known to cost it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "execute/library_state.hpp"
#include "spec/choose/portfolio.hpp"
#include "store/build.hpp"

namespace ejk::tools {

struct PackedImage {
  store::BuildItem item;
  std::optional<store::Found> found;  // where a store has it; else it is to be built
};

// A recorded call; its demand's choices are indices into PackPlan::images, its costs microseconds of one call.
struct PackedInvocation {
  spec::Demand demand;
  std::string tier;      // that chose the config: "persistent", "heuristic"
  std::string evidence;  // of the costs: "FILE:LINE", or why there are none
};

struct PackPlan {
  std::vector<PackedImage> images;
  std::vector<PackedInvocation> calls;
  struct Skipped {
    std::string call, why;
  };
  std::vector<Skipped> skipped;
  std::vector<std::string> faults;  // lines of the trace that cannot be read
};

// Images: those that the calls choose, and of measured alternatives those that a store has. machine: takes the calls to that device; null:
// each to its own. Throws CodedError if the trace cannot be read.
PackPlan plan_pack(const std::string& trace, const Machine* machine);

}  // namespace ejk::tools
