// A launch's threads, their shares of its items, and what became of them.
#include "backends/cpu/cooperative_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backends/cpu/executor.hpp"
#include "backends/cpu/inside_cell.hpp"
#include "backends/cpu/meeting.hpp"
#include "backends/cpu/work_item.hpp"
#include "backends/thread_table.hpp"

namespace ejk {
namespace {

using Verdict = Meeting::Verdict;
constexpr std::int64_t none = INT64_MAX;

void note_lowest(std::atomic<std::int64_t>& lowest, std::int64_t cell) {
  auto known = lowest.load(std::memory_order_relaxed);
  while (cell < known && !lowest.compare_exchange_weak(known, cell, std::memory_order_relaxed)) {
  }
}

// What the threads of a launch share.
struct Grid {
  const LaunchRequest& request;
  const std::int64_t cells;
  Meeting meeting{};
  std::atomic<std::int64_t> ended{0}, first_ended{none}, first_waiting{none};
  std::atomic<bool> no_memory{false};

  Verdict arrive(int participants) {
    return meeting.arrive(participants, [this] {
      const auto count = ended.load(std::memory_order_relaxed);
      if (no_memory.load(std::memory_order_relaxed)) return Verdict::failed;
      return count == 0 ? Verdict::go_on : count == cells ? Verdict::all_ended : Verdict::failed;
    });
  }
  std::string place(std::int64_t cell) const {
    const auto group = group_of(request, cell);
    return fmt::format("work item ({}, {}, {})", group.x, group.y, group.z);
  }
};

// The stacks of one thread, kept. Those of a launch from inside an item lie behind its own launch's.
struct Items {
  std::vector<std::unique_ptr<WorkItem>> all;
  std::size_t used = 0;
};

// One thread's share of a launch.
class Participant {
 public:
  Participant(Grid& grid, int index, int participants)
      : grid_(grid),
        participants_(participants),
        first_(grid.cells * index / participants),
        count_(static_cast<std::size_t>(grid.cells * (index + 1) / participants - first_)),
        items_(of_thread<Items>()),
        base_(items_.used),
        before_(std::exchange(running, this)) {
    items_.used += count_;
  }
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;
  ~Participant() {
    items_.used = base_;
    running = before_;
  }

  void run() {
    try {
      prepare();
    } catch (const std::bad_alloc&) {
      grid_.no_memory.store(true, std::memory_order_relaxed);
      grid_.arrive(participants_);
      return;
    }
    while (!stopped_) {
      for (current_ = 0; current_ < count_ && !stopped_; ++current_) run_to_barrier();
      if (!stopped_) stopped_ = grid_.arrive(participants_) != Verdict::go_on;
    }
    for (std::size_t i = 0; i < count_; ++i)
      if (!item(i).ended()) note_lowest(grid_.first_waiting, cell(i));
  }

  // By the item that runs. Alone on its thread it waits where it is.
  static void meet() {
    auto& self = *running;
    if (self.count_ == 1) self.stopped_ = self.grid_.arrive(self.participants_) != Verdict::go_on;
    if (self.count_ > 1 || self.stopped_) self.item(self.current_).suspend();
  }

 private:
  // Throws std::bad_alloc before any item has run.
  void prepare() {
    while (items_.all.size() < base_ + count_) items_.all.push_back(std::make_unique<WorkItem>());
    const auto bytes = (static_cast<std::size_t>(grid_.request.shared_bytes) + 63) / 64 * 64;
    auto* scratch = static_cast<std::byte*>(inside_.scratch().at_least(bytes * count_));
    for (std::size_t i = 0; i < count_; ++i) {
      auto place = group_of(grid_.request, cell(i));
      place.shared = scratch ? scratch + i * bytes : nullptr;
      item(i).start(reinterpret_cast<CpuEntry>(grid_.request.entry), grid_.request.arguments, place);
    }
  }

  void run_to_barrier() {
    item(current_).resume();
    if (!item(current_).ended()) return;
    note_lowest(grid_.first_ended, cell(current_));
    grid_.ended.fetch_add(1, std::memory_order_relaxed);
  }

  WorkItem& item(std::size_t i) { return *items_.all[base_ + i]; }
  std::int64_t cell(std::size_t i) const { return first_ + static_cast<std::int64_t>(i); }

  static thread_local Participant* running;
  Grid& grid_;
  InsideCell inside_;
  const int participants_;
  const std::int64_t first_;
  const std::size_t count_;
  Items& items_;
  const std::size_t base_;
  Participant* const before_;  // of the launch from inside whose item this one comes
  std::size_t current_ = 0;
  bool stopped_ = false;
};
thread_local Participant* Participant::running = nullptr;

// Where nobody is certain to run beside the caller, he has all items.
void participate(void* work, int index, int together) {
  auto& grid = *static_cast<Grid*>(work);
  const int participants = static_cast<int>(std::min<std::int64_t>(together, grid.cells));
  if (index < participants) Participant(grid, index, participants).run();
}

void run_items(Grid& grid) {
  auto& executor = executor_of_this_thread();
  const auto threads = std::min<std::int64_t>({cpu_threads(), executor.threads(), grid.cells});
  if (threads <= 1 || InsideCell::any() || !executor.run_at_once(static_cast<int>(threads), participate, &grid)) participate(&grid, 0, 1);
}

}  // namespace

void run_cooperative_grid(const LaunchRequest& request) {
  const auto cells = cells_of(request);
  if (cells == 0) return;
  const char* name = request.name ? request.name : "a launch";
  if (cells > most_cooperative_items)
    throw std::runtime_error(fmt::format("{}: {} work items of a cooperative launch, at most {} are there at once; make its grid smaller",
                                         name, cells, most_cooperative_items));
  Grid grid{request, cells};
  run_items(grid);
  if (grid.no_memory)
    throw std::runtime_error(
        fmt::format("{}: no memory for the stacks of {} work items and {} bytes of scratch each", name, cells, request.shared_bytes));
  if (grid.ended != cells)
    throw std::runtime_error(
        fmt::format("{}: {} ended without grid barrier {}, at which {} waits: every work item of a cooperative launch must come to each",
                    name, grid.place(grid.first_ended), grid.meeting.turns(), grid.place(grid.first_waiting)));
}

const GridBarrier& cpu_grid_barrier() {
  static constexpr GridBarrier barrier{Participant::meet};
  return barrier;
}

}  // namespace ejk
