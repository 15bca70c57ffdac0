// From a bound call to a loaded image: config chain, then the image, then wherever a binary of it can be had.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "execute/background.hpp"
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
  Selection selection;                   // what the chain chose
  bool fallback = false;                 // not what the chain chose: no binary of that could be had
  std::shared_ptr<const Build> awaited;  // not what the chain chose: that is being built, and is taken when it is ready
  std::string awaited_image;
  std::vector<std::string> tried;
};

// What becomes of an image that no store has and that may be compiled.
enum class Missing {
  wait,      // for the compiler
  stand_in,  // another image serves until it is built behind the calls
  defer,     // nothing is to run yet: it is built behind the calls, and nothing is loaded
};

// Throws CallError (no variant, an override that cannot serve) or CodedError (missing_image, compile_failed) naming all that was tried.
Resolved resolve(const BoundCall& call, const Config* override_config, bool explain_all, Missing missing);

// Counts and tells of an image that was compiled just now. tried: what kept it from being kept.
void count_compiled(const spec::Image& image, const store::Obtained& obtained, const std::vector<std::string>& tried);

}  // namespace ejk
