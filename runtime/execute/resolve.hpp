// From a bound call to a loaded image: config chain, then the image, then wherever a binary of it can be had.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "execute/bound_call.hpp"
#include "execute/library_state.hpp"
#include "store/obtain.hpp"

namespace ejk {

struct Resolved {
  Candidate candidate;
  spec::Arch arch;  // with the threads in force now
  spec::Config config;
  spec::Image image;
  store::Obtained obtained;
  Selection selection;    // what the chain chose
  bool fallback = false;  // not what the chain chose: no binary of that could be had
  std::vector<std::string> tried;
};

// Throws CallError (no variant, an override that cannot serve) or CodedError (missing_image, compile_failed) naming all that was tried.
Resolved resolve(const BoundCall& call, const Config* override_config, bool explain_all = false);

}  // namespace ejk
