// Cooperative launches on the CPU: all work items of the grid are resident at once and synchronise at grid barriers. The threads that the
// pool gives share them out, neighbours together. An item with a thread of its own waits on that thread; several of one thread have a stack
// each and take turns from barrier to barrier, so that one thread alone also comes to the end: from inside another launch's item, or where
// the executor has nobody who is certain to run beside the caller (`together` in executor.hpp).
#pragma once
#include "backends/backend.h"

namespace ejk {

constexpr std::int64_t most_cooperative_items = 4096;  // of a launch: each has a stack

// Throws std::runtime_error: too many items, no memory for them, or an item that ended while others wait for it at a barrier.
void run_cooperative_grid(const LaunchRequest& request);

// As templates/device/tile/grid_barrier.h declares it: what a cooperative launch's argument `grid_barrier` points to.
struct GridBarrier {
  void (*meet)();
};
const GridBarrier& cpu_grid_barrier();

}  // namespace ejk
