// Products of a warpgroup that a warp has started and not waited for.
#pragma once
#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

// With Pace::lazy, products run when their group is waited for; with Pace::eager at once, and none is ever pending. Whoever ends a warp
// asks this: a kernel that ends without a wait leaves its last sums undefined.
bool has_pending_products(const Warp& warp);

}  // namespace ejk::ptx
