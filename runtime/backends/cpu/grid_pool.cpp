// A grid's cells over the participants that an executor gives; a caller that gets none works alone.
#include "backends/cpu/grid_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>

#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/executor.hpp"
#include "backends/cpu/inside_cell.hpp"

namespace ejk {
namespace {

constexpr std::int64_t chunks_a_thread = 128;
constexpr int most_threads = 4096;

std::atomic<int> wanted_threads{0};

// Cells [begin, end) in order, x fastest.
void run_cells(const LaunchRequest& request, std::int64_t begin, std::int64_t end, void* shared) {
  const auto entry = reinterpret_cast<CpuEntry>(request.entry);
  const auto gx = request.grid[0], gy = request.grid[1];
  Group group = group_of(request, begin);
  group.shared = shared;
  for (auto cell = begin; cell < end; ++cell) {
    entry(request.arguments, &group);
    if (++group.x < gx) continue;
    group.x = 0;
    if (++group.y < gy) continue;
    group.y = 0;
    ++group.z;
  }
}

void* scratch_for(Scratch& scratch, const LaunchRequest& request) {
  return request.shared_bytes > 0 ? scratch.at_least(static_cast<std::size_t>(request.shared_bytes)) : nullptr;
}

void run_alone(const LaunchRequest& request, std::int64_t cells) {
  InsideCell inside;
  void* shared = scratch_for(inside.scratch(), request);
  run_cells(request, 0, cells, shared);
}

// A launch in the hands of several participants, on the caller's stack.
struct GridJob {
  const LaunchRequest& request;
  std::int64_t cells, chunk;
  alignas(64) std::atomic<std::int64_t> next{0};
};

void take_cells(GridJob& job) {
  InsideCell inside;
  void* shared = scratch_for(inside.scratch(), job.request);
  for (;;) {
    const auto begin = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.cells) return;
    run_cells(job.request, begin, std::min(begin + job.chunk, job.cells), shared);
  }
}

void share_cells(void* work, int, int) {
  try {
    take_cells(*static_cast<GridJob*>(work));
  } catch (const std::bad_alloc&) {
    // No scratch for this thread: it took no cell, the others take them all. The caller's has been made before.
  }
}

// False: nothing was run. Throws std::bad_alloc before anything is run.
bool run_together(const LaunchRequest& request, std::int64_t cells) {
  auto& executor = executor_of_this_thread();
  const int threads = std::min(cpu_threads(), executor.threads());
  if (threads <= 1) return false;
  (void)scratch_for(InsideCell().scratch(), request);
  GridJob job{request, cells, std::max<std::int64_t>(1, cells / (chunks_a_thread * threads))};
  const auto chunks = (cells + job.chunk - 1) / job.chunk;
  return executor.run(static_cast<int>(std::min<std::int64_t>(threads, chunks)), share_cells, &job);
}

}  // namespace

std::int64_t cells_of(const LaunchRequest& request) {
  const auto* grid = request.grid;
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return 0;
  std::int64_t cells = 0;
  if (__builtin_mul_overflow(grid[0], grid[1], &cells) || __builtin_mul_overflow(cells, grid[2], &cells))
    throw std::runtime_error(fmt::format("a grid of {} x {} x {} cells is too large: expected fewer than 2^63", grid[0], grid[1], grid[2]));
  return cells;
}

Group group_of(const LaunchRequest& request, std::int64_t cell) {
  const auto gx = request.grid[0], gy = request.grid[1];
  return {cell % gx, cell / gx % gy, cell / gx / gy, gx, gy, request.grid[2], nullptr};
}

void run_grid(const LaunchRequest& request) {
  const auto cells = cells_of(request);
  if (cells == 0) return;
  try {
    const bool alone = cells == 1 || InsideCell::any();
    if (alone || !run_together(request, cells)) run_alone(request, cells);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(fmt::format("no memory for {} bytes of scratch a thread", request.shared_bytes));
  }
}

void set_cpu_threads(int threads) { wanted_threads.store(std::clamp(threads, 0, most_threads), std::memory_order_relaxed); }

int cpu_threads() {
  const int wanted = wanted_threads.load(std::memory_order_relaxed);
  if (wanted > 0) return wanted;
  static std::atomic<int> available{0};  // no guarded static: a fork could leave its guard held in the child
  if (available.load(std::memory_order_relaxed) == 0) available.store(available_threads(), std::memory_order_relaxed);
  return available.load(std::memory_order_relaxed);
}

}  // namespace ejk
