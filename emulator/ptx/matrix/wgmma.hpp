// Products of a warpgroup that a warp has started and not waited for.
#pragma once
#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

// Also of those that have run: at once with Pace::eager, with Pace::lazy at another warp's wait. A warp that exits then is at fault: nobody
// can use its last sums.
bool has_pending_products(const Warp& warp);

}  // namespace ejk::ptx
