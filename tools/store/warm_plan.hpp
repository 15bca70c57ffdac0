// What `ejk warm` builds: the images of recorded calls and of the labels of compiled programs.
#pragma once
#include <string>
#include <vector>

#include "execute/library_state.hpp"
#include "store/build.hpp"

namespace ejk::tools {

struct WarmPlan {
  struct Skipped {
    std::string call, why;  // "shift on cpu-avx512-2t", a label
  };
  struct Found {
    std::string kernel, device, image, hash;
  };
  std::size_t calls = 0;                // that an image was found for
  std::vector<Found> found;             // of each of them, in order
  std::vector<store::BuildItem> items;  // each image once
  std::vector<Skipped> skipped;
  std::vector<std::string> faults;  // lines and labels that cannot be read
};

// trace and hlo are files; empty: none. With both, the calls are those that hlo names, and trace is where hashes are looked up. machine:
// takes the calls to that device; null: each to its own. to_build: images that nothing here compiles are skipped. Throws CodedError if a
// file cannot be read.
WarmPlan plan_to_warm(const std::string& trace, const std::string& hlo, const Machine* machine, bool to_build = true);

}  // namespace ejk::tools
