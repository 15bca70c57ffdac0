// A launch: the blocks of a grid, one after the other, on the calling thread; of a cooperative one, in turns from barrier to barrier.
#pragma once
#include <string>

#include "emulator/block.hpp"
#include "emulator/shared_memory.hpp"

namespace ejk::simt {

// What Module::entry() gives out.
struct Entry {
  std::string image, name;
  void (*function)(void* const* arguments) = nullptr;
  const SimtImage* memory = nullptr;
};

// The block that runs: one a process at a time, since launches wait for one another.
struct RunningBlock {
  Block* block = nullptr;
  SharedMemory* shared = nullptr;
  bool cooperative = false;
};
RunningBlock& running_block();

// Threads of a cooperative launch: each is a fiber with a stack, and all are alive at once.
constexpr std::int64_t most_cooperative_threads = 16384;

// Throws std::runtime_error that names image, entry and block.
void launch(const LaunchRequest& request, SimtOrder order);

// What images call.
const SimtHost& host();
void meet_at_grid_barrier();  // bound by templates/device/tile/grid_barrier.h

}  // namespace ejk::simt
