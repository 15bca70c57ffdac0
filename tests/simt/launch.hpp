// A launch: the blocks of a grid, one after the other, on the calling thread.
#pragma once
#include <string>

#include "simt/block.hpp"
#include "simt/shared_memory.hpp"

namespace ejk::simt {

// What Module::entry() gives out.
struct Entry {
  std::string image, name;
  void (*function)(void* const* arguments) = nullptr;
  const SimtImage* memory = nullptr;
};

// The block that runs: one a process, since launches wait for one another.
struct RunningBlock {
  Block block;
  SharedMemory* shared = nullptr;
};
RunningBlock& running_block();

// Throws std::runtime_error that names image, entry and block.
void launch(const LaunchRequest& request, SimtOrder order);

// What images call.
const SimtHost& host();

}  // namespace ejk::simt
