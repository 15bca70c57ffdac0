// An arch as a machine has it.
#pragma once
#include "backends/backend.h"
#include "common/environment.hpp"

namespace ejk {

// With what was measured in place of its file's properties, and within EJKERNEL_SMEM_LIMIT.
spec::Arch arch_here(const spec::Arch& arch, const Probe& probe, const Environment& environment);

}  // namespace ejk
