// Bulk stores that lanes have started and not waited for.
#pragma once
#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

// Of any of these lanes, with Pace::lazy; with Pace::eager they are not listed. A store reads shared memory, which is the CTA's no longer
// when it has ended, and no other thread can wait for it: a lane that exits before is at fault.
bool has_unwaited_stores(const Warp& warp, std::uint32_t lanes_of_it);

}  // namespace ejk::ptx
