// Grids: CTAs come as room is for them, warps take turns, and what is pending is done when no warp goes on.
#include "emulator/ptx/run/run.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <stdexcept>

#include "emulator/ptx/run/run_warp.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint32_t most_shared = 232448;  // of a CTA, compute capability 9.0
constexpr int fewest_in_a_turn = 20, most_in_a_turn = 400;
// A grid of tests is far below it: beyond, its threads spin.
constexpr std::uint64_t most_turns = 200'000'000;
// Threads that spin without a word of waiting (flags in global memory) let pending work go on when for some rounds none has done anything
// that others see; and now and then, since they may spin by what others see, too.
constexpr int most_quiet_rounds = 8;
// With nothing pending, after so many they spin for ever: nobody computes that long without storing anything.
constexpr int quiet_rounds_of_a_spin = 100'000;
constexpr std::uint64_t turns_of_a_round = 500;

class Random {  // splitmix64
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    auto z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  std::uint64_t below(std::uint64_t count) { return next() % count; }

 private:
  std::uint64_t state_;
};

struct RunningBlock {
  Block block;
  std::vector<std::unique_ptr<RunningWarp>> warps;
  std::string name() const { return fmt::format("CTA ({}, {}, {})", block.index[0], block.index[1], block.index[2]); }
  bool ended() const {
    for (const auto& warp : warps)
      if (!warp->ended()) return false;
    return true;
  }
};

// CTAs of a cluster begin together, and are there until the last has ended, since others reach into their memory.
struct RunningCluster {
  std::vector<std::unique_ptr<RunningBlock>> blocks;
  Meeting barrier;
  bool ended() const {
    for (const auto& block : blocks)
      if (!block->ended()) return false;
    return true;
  }
};

class RunningGrid {
 public:
  explicit RunningGrid(const Launch& launch) : launch_(launch), random_(launch.seed) {
    grid_.entry = launch.entry, grid_.program = launch.program;
    grid_.extent = launch.grid, grid_.threads = launch.threads, grid_.cluster = launch.cluster, grid_.pace = launch.pace;
    check();
    lay_out_parameters();
  }

  void run() {
    const auto cluster_size = volume(launch_.cluster);
    const auto clusters = volume(launch_.grid) / cluster_size;
    const auto most = launch_.cooperative ? clusters : std::max<std::uint64_t>(1, resident_ctas / cluster_size);
    for (std::uint64_t next = 0; next < clusters || !running_.empty();) {
      while (next < clusters && running_.size() < most) start_cluster(next++);
      turns();
      std::erase_if(running_, [](const auto& cluster) { return cluster->ended(); });
    }
    while (!grid_.pending.empty()) do_pending(0);
  }

 private:
  static std::uint64_t volume(const std::array<std::uint32_t, 3>& extent) { return std::uint64_t{extent[0]} * extent[1] * extent[2]; }
  [[noreturn]] void refuse(const std::string& sentence) const {
    throw std::runtime_error(fmt::format("PTX emulator: {}: {}", launch_.entry->name, sentence));
  }

  void check() const {
    const auto threads = volume(launch_.threads);
    if (threads < 1 || threads > static_cast<std::uint64_t>(launch_.entry->most_threads))
      refuse(fmt::format("a CTA of {} threads, expected 1 to {}", threads, launch_.entry->most_threads));
    for (std::size_t i = 0; i < 3; ++i)
      if (launch_.cluster[i] < 1 || launch_.grid[i] < 1 || launch_.grid[i] % launch_.cluster[i])
        refuse(fmt::format("in dimension {} a grid of {} CTAs and clusters of {}, expected a multiple", i, launch_.grid[i],
                           launch_.cluster[i]));
    if (shared_bytes() > reserved_shared + most_shared)
      refuse(fmt::format("{} bytes of shared memory a CTA, expected at most {}", shared_bytes() - reserved_shared, most_shared));
  }
  std::size_t shared_bytes() const { return reserved_shared + launch_.entry->shared_bytes + launch_.dynamic_shared; }

  void lay_out_parameters() {
    const auto& parameters = launch_.entry->parameters;
    if (launch_.arguments.size() < parameters.size())
      refuse(fmt::format("{} arguments, expected {}", launch_.arguments.size(), parameters.size()));
    // Tensor maps are aligned to 64 in the block, and so is the block.
    grid_.parameters.assign(launch_.entry->parameter_bytes, 0);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      std::memcpy(grid_.parameters.data() + parameters[i].offset, launch_.arguments[i], parameters[i].bytes);
  }

  void start_cluster(std::uint64_t number) {
    auto& cluster = *running_.emplace_back(std::make_unique<RunningCluster>());
    std::array<std::uint32_t, 3> first{};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto along = launch_.grid[i] / launch_.cluster[i];
      first[i] = static_cast<std::uint32_t>(number % along) * launch_.cluster[i];
      number /= along;
    }
    const auto size = volume(launch_.cluster);
    for (std::uint32_t rank = 0; rank < size; ++rank) start_block(cluster, first, rank);
    for (auto& each : cluster.blocks) {
      for (auto& other : cluster.blocks) each->block.cluster.push_back(&other->block);
      each->block.cluster_barrier = &cluster.barrier;
      for (auto& warp : each->warps) warp->prepare();
    }
  }

  void start_block(RunningCluster& cluster, const std::array<std::uint32_t, 3>& first, std::uint32_t rank) {
    auto& running = *cluster.blocks.emplace_back(std::make_unique<RunningBlock>());
    auto& block = running.block;
    block.grid = &grid_, block.rank = static_cast<int>(rank);
    auto rest = rank;
    for (std::size_t i = 0; i < 3; ++i) block.index[i] = first[i] + rest % launch_.cluster[i], rest /= launch_.cluster[i];
    block.shared.assign(shared_bytes(), 0x7f);  // shared memory starts as large numbers in every type; a barrier's first bit is clear
    for (std::size_t i = 1; i < block.shared.size(); i += 2) block.shared[i] = static_cast<char>(i % 4 == 3 ? 0x7f : 0xff);
    const auto threads = volume(launch_.threads);
    for (std::uint64_t t = 0; t < threads; t += lanes) {
      const auto left = threads - t;
      const auto mask = left >= lanes ? all_lanes : (1u << left) - 1;
      running.warps.push_back(std::make_unique<RunningWarp>(block, static_cast<int>(t / lanes), mask));
    }
  }

  // Warps take turns until a cluster has ended.
  void turns() {
    std::vector<std::pair<RunningBlock*, RunningWarp*>> warps;
    for (auto& cluster : running_)
      for (auto& block : cluster->blocks)
        for (auto& warp : block->warps) warps.emplace_back(block.get(), warp.get());
    int quiet = 0;
    for (std::uint64_t round = 1;; ++round) {
      bool done = false, seen = false;
      for (std::size_t i = warps.size(); i > 1; --i) std::swap(warps[i - 1], warps[random_.below(i)]);
      for (auto& [block, warp] : warps) done |= turn(*block, *warp), seen |= warp->was_seen();
      std::erase_if(warps, [&](const auto& each) { return each.second->ended() && (check_end(*each.first), true); });
      for (const auto& cluster : running_)
        if (cluster->ended()) return;
      if (!done && grid_.pending.empty()) refuse("no thread goes on: " + whereabouts());
      quiet = seen ? 0 : quiet + 1;
      if (!grid_.pending.empty() && (!done || quiet >= most_quiet_rounds || round % turns_of_a_round == 0)) do_some_pending(), quiet = 0;
      if (++turns_ > most_turns || quiet > quiet_rounds_of_a_spin) refuse("its threads spin for ever: " + whereabouts());
    }
  }

  bool turn(RunningBlock& block, RunningWarp& warp) {
    if (warp.ended()) return false;
    try {
      return warp.run(fewest_in_a_turn + static_cast<int>(random_.below(most_in_a_turn - fewest_in_a_turn)));
    } catch (const Fault& fault) {
      try {
        warp.refuse(fault);
      } catch (const std::runtime_error& error) {
        refuse(fmt::format("{}, {}", block.name(), error.what()));
      }
    }
  }

  // A warp of it has ended. When all have, its shared memory is no longer there: a copy that comes later writes into another CTA's, or
  // reads it.
  void check_end(const RunningBlock& block) const {
    if (!block.ended()) return;
    for (const auto& pending : grid_.pending)
      if (pending.memory == &block.block && !pending.piece->has_run())
        refuse(fmt::format("{} has ended, and a copy that nobody waited for still reads or writes its shared memory ({})", block.name(),
                           pending.what));
  }

  // One piece, the oldest or any other: copies come in any order.
  void do_some_pending() {
    if (!grid_.pending.empty()) do_pending(random_.below(2) ? 0 : random_.below(grid_.pending.size()));
  }
  void do_pending(std::size_t number) {
    const auto pending = std::move(grid_.pending[number]);
    grid_.pending.erase(grid_.pending.begin() + static_cast<std::ptrdiff_t>(number));
    try {
      pending.piece->run();
    } catch (const Fault& fault) {
      refuse(fmt::format("{}: {}", pending.what, fault.words));
    }
  }

  std::string whereabouts() const {
    constexpr int most_told = 12;  // warps
    std::string text;
    int told = 0;
    for (const auto& cluster : running_)
      for (const auto& block : cluster->blocks)
        for (const auto& warp : block->warps) {
          if (warp->ended() || ++told > most_told) continue;
          text += fmt::format("{}{}, warp {} at {}", text.empty() ? "" : "; ", block->name(), warp->warp().number, warp->whereabouts());
        }
    return told > most_told ? fmt::format("{}; and {} warps more", text, told - most_told) : text;
  }

  const Launch& launch_;
  Random random_;
  Grid grid_;
  std::vector<std::unique_ptr<RunningCluster>> running_;
  std::uint64_t turns_ = 0;
};

std::atomic<Pace> next_pace{Pace::eager};
std::atomic<std::uint64_t> launches{0};  // since the pace was set

}  // namespace

void run(const Launch& launch) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  RunningGrid(launch).run();
}

void set_pace(Pace pace) { next_pace = pace, launches = 0; }
Pace pace() { return next_pace; }
std::uint64_t next_seed() { return 2 * launches++ + (pace() == Pace::eager ? 1 : 2); }

}  // namespace ejk::ptx
