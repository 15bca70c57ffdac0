// Running a grid of one entry.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

struct Launch {
  const Program* program = nullptr;
  const EntryCode* entry = nullptr;
  std::array<std::uint32_t, 3> grid{1, 1, 1}, threads{1, 1, 1}, cluster{1, 1, 1};
  std::size_t dynamic_shared = 0;
  bool cooperative = false;          // all CTAs are there at once
  std::span<void* const> arguments;  // of each parameter's size
  Pace pace = Pace::eager;
  std::uint64_t seed = 1;  // of the order in which warps run, and pending work is done
};

// CTAs that are there at once, of a grid that is not cooperative. Some wait for others that come before or after them in the grid.
constexpr std::uint32_t resident_ctas = 64;

// Returns when the grid has ended. Throws std::runtime_error that names entry, CTA, warp and line: a fault of the kernel, or threads that
// wait for ever.
void run(const Launch& launch);

// How the next launches of this process run; `ejk verify` runs each call in both.
void set_pace(Pace pace);
Pace pace();
// A seed for the next launch, another each time; after set_pace the pace's first again.
std::uint64_t next_seed();

}  // namespace ejk::ptx
