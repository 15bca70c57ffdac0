// Grids: limits as a driver has them, the order of blocks, errors with their place.
#include "emulator/launch.hpp"

#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <stdexcept>

#include "emulator/sanitizer.hpp"

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
  if (request.cluster[0] * request.cluster[1] * request.cluster[2] != 1) refuse(entry, "clusters are not emulated");
  if (request.cooperative && x * y * z * threads > most_cooperative_threads)
    refuse(entry,
           fmt::format("a cooperative grid of {} blocks of {} threads: its {} threads are alive at once, at most {} here; make the grid "
                       "smaller",
                       x * y * z, threads, x * y * z * threads, most_cooperative_threads));
  // The sanitizer's red zones between variables do not count.
  const auto most_shared = entry.memory->most_shared;
  const auto fixed = sanitized ? 0 : entry.memory->shared_end - entry.memory->shared_begin;
  if (fixed > most_static_shared) refuse(entry, fmt::format("{} bytes of __shared__ variables, at most {}", fixed, most_static_shared));
  if (request.shared_bytes < 0 || fixed + request.shared_bytes > most_shared)
    refuse(entry, fmt::format("{} bytes of shared memory, at most {}", fixed + request.shared_bytes, most_shared));
}

// A block of the grid with its shared memory.
struct Resident {
  Resident(const Entry& entry, const LaunchRequest& request, Block& its_block)
      : block(its_block), shared(*entry.memory, static_cast<std::size_t>(request.shared_bytes)) {
    place.dynamic_shared = shared.dynamic();
    place.grid_x = static_cast<int>(request.grid[0]);
    place.grid_y = static_cast<int>(request.grid[1]);
  }
  std::string name() const { return fmt::format("block ({}, {}, {})", place.block_x, place.block_y, place.block_z); }

  Block& block;
  SharedMemory shared;
  SimtThread place{};
};

class Grid {
 public:
  Grid(const Entry& entry, const LaunchRequest& request, SimtOrder order)
      : entry_(entry), request_(request), order_(order), blocks_(request.grid[0] * request.grid[1] * request.grid[2]) {}

  // One block after the other, in the same memory.
  void run() {
    static Block block;  // its stacks are kept
    Resident resident(entry_, request_, block);
    for (std::int64_t i = 0; i < blocks_; ++i) {
      start(resident, i);
      go_on(resident);
    }
  }

  // All blocks are there at once, and take turns from barrier to barrier.
  void run_together() {
    std::deque<Block> blocks(static_cast<std::size_t>(blocks_));
    std::deque<Resident> residents;
    for (std::int64_t i = 0; i < blocks_; ++i) {
      auto& resident = residents.emplace_back(entry_, request_, blocks[static_cast<std::size_t>(i)]);
      start(resident, i);
      resident.shared.put_aside();
    }
    for (int barrier = 1;; ++barrier) {
      for (auto& resident : residents) {
        resident.shared.put_back();
        go_on(resident);
        resident.shared.put_aside();
      }
      if (!all_wait(residents, barrier)) return;
      for (auto& resident : residents) resident.block.leave_grid_barrier();
    }
  }

 private:
  void start(Resident& resident, std::int64_t number) const {
    const auto block = order_ == SimtOrder::forwards ? number : blocks_ - 1 - number;
    const auto x = request_.grid[0], y = request_.grid[1];
    resident.place.block_x = static_cast<int>(block % x);
    resident.place.block_y = static_cast<int>(block / x % y);
    resident.place.block_z = static_cast<int>(block / x / y);
    resident.shared.make_undefined();
    resident.block.start(static_cast<int>(request_.block[0]), entry_.memory->wave, resident.place, work_);
  }

  void go_on(Resident& resident) const {
    running_block() = {&resident.block, &resident.shared, request_.cooperative};
    const auto report = [&](const std::string& what) {
      refuse(entry_, fmt::format("{} of {} threads: {}", resident.name(), request_.block[0], what));
    };
    try {
      resident.block.go_on(order_);
    } catch (const std::runtime_error& error) {
      report(error.what());
    }
    if (resident.shared.overrun()) report(fmt::format("it wrote behind its {} bytes of dynamic shared memory", request_.shared_bytes));
  }

  // False: all have ended.
  bool all_wait(const std::deque<Resident>& residents, int barrier) const {
    const auto list = [&](auto threads_of) {
      std::string text;
      int more = -most_told;
      for (const auto& resident : residents) {
        const auto threads = threads_of(resident.block);
        if (threads.empty() || ++more > 0) continue;
        text += fmt::format("{}threads {} of {}", text.empty() ? "" : ", ", threads, resident.name());
      }
      return more > 0 ? fmt::format("{} and {} blocks more", text, more) : text;
    };
    const auto waiting = list([](const Block& block) { return block.waiting_at_grid_barrier(); });
    const auto exited = list([](const Block& block) { return block.exited(); });
    if (!waiting.empty() && !exited.empty())
      refuse(entry_, fmt::format("grid_barrier {}: {} wait at it; {} have exited: every thread of every block of a cooperative launch must "
                                 "come to it",
                                 barrier, waiting, exited));
    return !waiting.empty();
  }

  static constexpr int most_told = 3;  // blocks in a message
  const Entry& entry_;
  const LaunchRequest& request_;
  const SimtOrder order_;
  const std::int64_t blocks_;
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
  Grid grid(entry, request, order);
  request.cooperative ? grid.run_together() : grid.run();
}

}  // namespace ejk::simt
