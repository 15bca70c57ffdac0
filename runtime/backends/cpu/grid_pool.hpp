// Runs the cells of a grid on the calling thread and those that an executor (executor.hpp) adds to it.
#pragma once
#include <cstdint>

#include "backends/backend.h"

namespace ejk {

// As templates/device/cpu.h declares it.
struct Group {
  std::int64_t x, y, z;
  std::int64_t grid_x, grid_y, grid_z;
  void* shared;
};
using CpuEntry = void (*)(void* const* arguments, const Group* group);

// Every cell exactly once; returns when all are done. Cells are taken in order, x fastest. One cell, one thread, a launch from inside
// a cell, or an executor that works for somebody else: all cells run on the caller. Thread-safe; no allocation after warm-up.
// Throws std::runtime_error for a grid of 2^63 cells or more, or scratch that cannot be had.
void run_grid(const LaunchRequest& request);

std::int64_t cells_of(const LaunchRequest& request);              // throws std::runtime_error: 2^63 or more
Group group_of(const LaunchRequest& request, std::int64_t cell);  // without scratch

}  // namespace ejk
