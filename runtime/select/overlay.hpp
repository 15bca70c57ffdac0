// The overlay tier: this thread's open overlay_cache scopes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ejk/kernel.hpp"

namespace ejk {

struct OverlayScope {
  std::string kernel;
  Config config;
  std::uint64_t id;  // never reused, so that plans made under a scope are not used outside it
};

std::vector<OverlayScope>& overlay_scopes();  // this thread's, outermost first

// 0 with no scope open; part of the plan key.
std::uint64_t overlay_id();

}  // namespace ejk
