// Grids: limits as a driver has them, the order of blocks, errors with their place.
#include "simt/launch.hpp"

#include <fmt/format.h>

#include <mutex>
#include <stdexcept>

#include "simt/sanitizer.hpp"

namespace ejk::simt {
namespace {

// CUDA's, compute capability 9.0.
constexpr std::int64_t most_grid_x = 0x7fffffff, most_grid_yz = 65535, most_static_shared = 49152;

[[noreturn]] void refuse(const Entry& entry, const std::string& sentence) {
  throw std::runtime_error(fmt::format("simt: {}: {}: {}", entry.image, entry.name, sentence));
}

void check(const Entry& entry, const LaunchRequest& request) {
  const auto& [x, y, z] = request.grid;
  const auto threads = request.block[0];
  if (request.block[1] != 1 || request.block[2] != 1) refuse(entry, "blocks have one dimension here");
  if (threads < 1 || threads > most_threads) refuse(entry, fmt::format("a block of {} threads, expected 1 to {}", threads, most_threads));
  if (x < 1 || y < 1 || z < 1 || x > most_grid_x || y > most_grid_yz || z > most_grid_yz)
    refuse(entry,
           fmt::format("a grid of {} x {} x {} blocks, expected 1 to {} x {} x {}", x, y, z, most_grid_x, most_grid_yz, most_grid_yz));
  if (request.cluster[0] * request.cluster[1] * request.cluster[2] != 1 || request.cooperative)
    refuse(entry, "clusters and cooperative launches are not emulated");
  // The sanitizer's red zones between variables do not count.
  const auto most_shared = entry.memory->most_shared;
  const auto fixed = sanitized ? 0 : entry.memory->shared_end - entry.memory->shared_begin;
  if (fixed > most_static_shared) refuse(entry, fmt::format("{} bytes of __shared__ variables, at most {}", fixed, most_static_shared));
  if (request.shared_bytes < 0 || fixed + request.shared_bytes > most_shared)
    refuse(entry, fmt::format("{} bytes of shared memory, at most {}", fixed + request.shared_bytes, most_shared));
}

class Grid {
 public:
  Grid(const Entry& entry, const LaunchRequest& request, SimtOrder order)
      : entry_(entry), request_(request), order_(order), shared_(*entry.memory, static_cast<std::size_t>(request.shared_bytes)) {
    place_.dynamic_shared = shared_.dynamic();
    place_.grid_x = static_cast<int>(request.grid[0]);
    place_.grid_y = static_cast<int>(request.grid[1]);
  }

  void run() {
    running_block().shared = &shared_;
    const auto [x, y, z] = request_.grid;
    const auto blocks = x * y * z;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const auto block = order_ == SimtOrder::forwards ? i : blocks - 1 - i;
      place_.block_x = static_cast<int>(block % x);
      place_.block_y = static_cast<int>(block / x % y);
      place_.block_z = static_cast<int>(block / x / y);
      run_block();
    }
  }

 private:
  void run_block() {
    shared_.make_undefined();
    try {
      running_block().block.run(static_cast<int>(request_.block[0]), entry_.memory->wave, place_, order_, work_);
    } catch (const std::runtime_error& error) {
      report(error.what());
    }
    if (shared_.overrun()) report(fmt::format("it wrote behind its {} bytes of dynamic shared memory", request_.shared_bytes));
  }

  [[noreturn]] void report(const std::string& what) const {
    refuse(entry_,
           fmt::format("block ({}, {}, {}) of {} threads: {}", place_.block_x, place_.block_y, place_.block_z, request_.block[0], what));
  }

  const Entry& entry_;
  const LaunchRequest& request_;
  const SimtOrder order_;
  SharedMemory shared_;
  SimtThread place_{};
  const Block::Work work_ = [this] { entry_.function(request_.arguments); };
};

}  // namespace

RunningBlock& running_block() {
  static RunningBlock running;
  return running;
}

void launch(const LaunchRequest& request, SimtOrder order) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const auto& entry = *static_cast<const Entry*>(request.entry);
  check(entry, request);
  Grid(entry, request, order).run();
}

}  // namespace ejk::simt
