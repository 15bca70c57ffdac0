// What bulk copies of bytes and of tensors' boxes share: where they arrive, groups of stores, reductions.
#pragma once
#include <functional>

#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_combine.hpp"

namespace ejk::ptx {

struct BulkTarget {
  Block* block;               // as which the addresses are read
  std::uint32_t to, barrier;  // shared addresses
  const Block& memory() const { return block->block_of(to); }
};

// Each place that a copy writes: `to`, or with a mask the same place in each of those CTAs of the cluster; its mbarrier there exists.
void each_target(Block& block, std::uint32_t to, std::uint32_t barrier, std::uint32_t mask,
                 const std::function<void(const BulkTarget&)>& work);

// Work of one lane that its next cp.async.bulk.commit_group takes.
void start_bulk_store(Warp& warp, int lane, const char* what, std::function<void()> work);

std::string_view bulk_reduction(const Parsed& parsed);  // "add"

}  // namespace ejk::ptx
