// This thread's open policy_override scopes.
#pragma once
#include <cstdint>
#include <vector>

#include "ejk/policy.hpp"

namespace ejk {

std::vector<AutotunePolicy>& policy_scopes();  // outermost first

// The innermost scope's policy as a number, 0 with no scope open; part of the plan key.
std::uint64_t policy_word();

}  // namespace ejk
