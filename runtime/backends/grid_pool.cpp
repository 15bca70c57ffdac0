// One job at a time over sleeping or spinning helpers; whoever finds the pool taken works alone.
#include "backends/grid_pool.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>
#include <utility>

#include "backends/cpu_features.hpp"
#include "backends/helpers.hpp"
#include "backends/scratch.hpp"

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
// A sleeping helper needs about 60 us to wake: one that has just worked stays awake this long for the next launch.
constexpr auto awake_time = std::chrono::microseconds(50);
constexpr int pauses_a_clock_read = 16;
constexpr int caller_spins = 2000;  // then the caller sleeps until the last helper leaves
constexpr std::int64_t chunks_a_thread = 128;
constexpr int most_threads = 4096;

std::atomic<int> wanted_threads{0};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// The scratch of the launch whose cell this thread is in; nullptr: it is in none.
thread_local Scratch* scratch_in_use = nullptr;
thread_local Scratch thread_scratch;

class InsideCell {
 public:
  explicit InsideCell(Scratch& scratch) : before_(std::exchange(scratch_in_use, &scratch)) {}
  ~InsideCell() { scratch_in_use = before_; }
  InsideCell(const InsideCell&) = delete;
  InsideCell& operator=(const InsideCell&) = delete;

 private:
  Scratch* before_;
};

// Cells [begin, end) in order, x fastest.
void run_cells(const LaunchRequest& request, std::int64_t begin, std::int64_t end, void* shared) {
  const auto entry = reinterpret_cast<CpuEntry>(request.entry);
  const auto gx = request.grid[0], gy = request.grid[1];
  Group group{begin % gx, begin / gx % gy, begin / gx / gy, gx, gy, request.grid[2], shared};
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
  Scratch& scratch = scratch_in_use ? scratch_in_use->nested() : thread_scratch;
  void* shared = scratch_for(scratch, request);
  const InsideCell inside(scratch);
  run_cells(request, 0, cells, shared);
}

// state_: bit 31 the job is open, bits 16-30 its number, bits 0-15 helpers that work on it.
class GridPool {
 public:
  static GridPool& instance() {
    static GridPool* pool = make();  // never destroyed: helpers sleep until the process ends
    return *pool;
  }

  // False: nothing was run, the pool is taken or has no helpers. Throws std::bad_alloc before anything is run.
  bool run(const LaunchRequest& request, std::int64_t cells) {
    (void)scratch_for(thread_scratch, request);  // so that it cannot fail once helpers are at work
    if (taken_.exchange(true, std::memory_order_acquire)) return false;
    const bool ready = has_helpers();
    if (ready) work_together(request, cells);
    taken_.store(false, std::memory_order_release);
    return ready;
  }

 private:
  static constexpr std::uint32_t open = 1u << 31, one_job = 1u << 16, job_bits = 0x7fffu << 16, helper_bits = 0xffffu;

  static GridPool* make() {
    auto* pool = new GridPool;
    pthread_atfork(nullptr, nullptr, [] { instance().forget_helpers(); });
    return pool;
  }

  // In a forked child there are no helper threads, and their locks may be held: the old pool is left alone, a new one is made on use.
  void forget_helpers() {
    (void)helpers_.release();
    state_.store(0);
    taken_.store(false);
  }

  bool has_helpers() {
    const int needed = cpu_threads() - 1;
    if (helpers_ && helpers_->count() == needed) return true;
    if (helpers_) helpers_->finish();  // helpers that are still awake look at helpers_
    helpers_.reset();
    if (needed <= 0) return false;
    try {
      helpers_ = std::make_unique<Helpers>(needed);
    } catch (const std::exception&) {
      return false;  // no more threads to be had: the caller works alone
    }
    return true;
  }

  void work_together(const LaunchRequest& request, std::int64_t cells) {
    request_ = request;
    cells_ = cells;
    chunk_ = std::max<std::int64_t>(1, cells / (chunks_a_thread * (helpers_->count() + 1)));
    useful_helpers_ = static_cast<int>(std::min<std::int64_t>(helpers_->count(), (cells - 1) / chunk_));
    next_.store(0, std::memory_order_relaxed);
    const auto job = (state_.load(std::memory_order_relaxed) + one_job) & job_bits;
    state_.store(open | job);  // sequentially consistent with the helpers' falling asleep
    wake(0);
    wake(1);
    take_cells(thread_scratch);
    state_.fetch_and(~open, std::memory_order_acq_rel);
    wait_for_helpers();
  }

  void wake(int index) {
    if (index < useful_helpers_) helpers_->wake(index, [this, index] { serve(index); });
  }

  void take_cells(Scratch& scratch) {
    void* shared = scratch_for(scratch, request_);
    const InsideCell inside(scratch);
    for (;;) {
      const auto begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
      if (begin >= cells_) return;
      run_cells(request_, begin, std::min(begin + chunk_, cells_), shared);
    }
  }

  void wait_for_helpers() {
    for (int spins = 0;; ++spins) {
      const auto state = state_.load(std::memory_order_acquire);
      if ((state & helper_bits) == 0) return;
      if (spins < caller_spins) {
        pause_cpu();
      } else {
        state_.wait(state, std::memory_order_acquire);
      }
    }
  }

  // ---- on a helper's thread ----

  static bool is_new(std::uint32_t state, std::uint32_t done) { return (state & open) && (state & job_bits) != done; }

  // Works, stays awake for a moment, works again; returns to sleep.
  void serve(int index) {
    auto& slot = helpers_->slot(index);
    std::uint32_t done = ~0u;  // the last job served; at first none
    do {
      for (auto deadline = Clock::now() + awake_time; Clock::now() < deadline;) {
        if (help(index, done)) deadline = Clock::now() + awake_time;
      }
      slot.awake.store(false);
      // A job may have come just before that; its caller may also have seen the slot asleep and called it again.
    } while (is_new(state_.load(), done) && !slot.awake.exchange(true));
  }

  // Joins the job if there is a new one. Once joined, the job stays until the helper leaves.
  bool help(int index, std::uint32_t& done) {
    for (int i = 0; i < pauses_a_clock_read; ++i) {
      auto state = state_.load(std::memory_order_acquire);
      if (!is_new(state, done)) {
        pause_cpu();
        continue;
      }
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      done = state & job_bits;
      wake(2 * index + 2);  // a tree: the first of many helpers are not woken one after the other
      wake(2 * index + 3);
      try {
        take_cells(thread_scratch);
      } catch (const std::bad_alloc&) {
        // No scratch for this helper: it took no cell, the others take them all.
      }
      const auto before = state_.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & helper_bits) == 1 && !(before & open)) state_.notify_all();
      return true;
    }
    return false;
  }

  std::atomic<bool> taken_{false};
  std::unique_ptr<Helpers> helpers_;  // changed only while taken
  LaunchRequest request_;
  std::int64_t cells_ = 0, chunk_ = 1;
  int useful_helpers_ = 0;
  alignas(64) std::atomic<std::uint32_t> state_{0};
  alignas(64) std::atomic<std::int64_t> next_{0};
};

// Made when the library is loaded: a fork during a first use would leave the child with a half-made pool that it waits for in vain.
[[maybe_unused]] GridPool& pool_from_the_start = GridPool::instance();

std::int64_t cells_of(const LaunchRequest& request) {
  const auto* grid = request.grid;
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return 0;
  std::int64_t cells = 0;
  if (__builtin_mul_overflow(grid[0], grid[1], &cells) || __builtin_mul_overflow(cells, grid[2], &cells))
    throw std::runtime_error(fmt::format("a grid of {} x {} x {} cells is too large: expected fewer than 2^63", grid[0], grid[1], grid[2]));
  return cells;
}

}  // namespace

void run_grid(const LaunchRequest& request) {
  const auto cells = cells_of(request);
  if (cells == 0) return;
  try {
    const bool alone = cells == 1 || scratch_in_use || cpu_threads() == 1;
    if (alone || !GridPool::instance().run(request, cells)) run_alone(request, cells);
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
