// A template for Hopper, as it is or with one word changed, on the PTX emulator against the float64 reference, in a process of its own.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/changed_store.hpp"

namespace ejk::hopper_trial {

using test::Change;

struct Subject {
  std::string kernel, case_name, variant;
  std::map<std::string, std::int64_t> sizes;  // instead of the case's dims
  bool operator==(const Subject&) const = default;
};

// Which paces (emulator/ptx.hpp) show that something is wrong: the wrong result, a fault, or threads that wait for ever.
// By both: also other bits in one order of warps than in another, where a call gives the same ones each time.
enum class Shown { by_none, by_eager, by_lazy, by_both };

struct Outcome {
  bool has_compiler = true;
  bool is_broken = false;  // the trial says nothing: the changed text does not compile, or no such variant takes the call
  Shown shown = Shown::by_none;
  std::string words;
};

// The same call at both paces.
Outcome try_on_hopper(const Subject& subject, const std::optional<Change>& change);

}  // namespace ejk::hopper_trial
