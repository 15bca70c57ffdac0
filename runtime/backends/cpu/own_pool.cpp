// One job at a time over sleeping or spinning helpers; a caller that finds the pool taken works alone.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>

#include "backends/backend.h"
#include "backends/cpu/executor.hpp"
#include "backends/cpu/pause.hpp"
#include "backends/helpers.hpp"

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
// A sleeping helper needs about 60 us to wake: one that has just worked stays awake this long for the next launch.
constexpr auto awake_time = std::chrono::microseconds(50);
constexpr int pauses_a_clock_read = 16;
constexpr int spins_for_helpers = 2000;  // then the caller sleeps until the last helper leaves

// state_: bit 31 the job is open, bits 16-30 its number, bits 0-15 helpers that work on it.
class OwnPool final : public CpuExecutor {
 public:
  static OwnPool& instance() {
    static OwnPool* pool = make();  // never destroyed: helpers sleep until the process ends
    return *pool;
  }

  int threads() override { return cpu_threads(); }

  bool run(int most, Share share, void* work) override {
    if (taken_.exchange(true, std::memory_order_acquire)) return false;
    const bool ready = has_helpers();
    if (ready) work_together(most, share, work);
    taken_.store(false, std::memory_order_release);
    return ready;
  }

 private:
  static constexpr std::uint32_t open = 1u << 31, one_job = 1u << 16, job_bits = 0x7fffu << 16, helper_bits = 0xffffu;

  static OwnPool* make() {
    auto* pool = new OwnPool;
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

  void work_together(int most, Share share, void* work) {
    share_ = share;
    work_ = work;
    useful_helpers_ = std::min(helpers_->count(), most - 1);
    const auto job = (state_.load(std::memory_order_relaxed) + one_job) & job_bits;
    state_.store(open | job);  // sequentially consistent with the helpers' falling asleep
    wake(0);
    wake(1);
    share(work, 0, useful_helpers_ + 1);
    state_.fetch_and(~open, std::memory_order_acq_rel);
    wait_for_helpers();
  }

  void wake(int index) {
    if (index < useful_helpers_) helpers_->wake(index, [this, index] { serve(index); });
  }

  void wait_for_helpers() {
    for (int spins = 0;; ++spins) {
      const auto state = state_.load(std::memory_order_acquire);
      if ((state & helper_bits) == 0) return;
      if (spins < spins_for_helpers) {
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
      if (index < useful_helpers_) share_(work_, index + 1, useful_helpers_ + 1);
      const auto before = state_.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & helper_bits) == 1 && !(before & open)) state_.notify_all();
      return true;
    }
    return false;
  }

  std::atomic<bool> taken_{false};
  std::unique_ptr<Helpers> helpers_;  // changed only while taken
  Share share_ = nullptr;
  void* work_ = nullptr;
  int useful_helpers_ = 0;
  alignas(64) std::atomic<std::uint32_t> state_{0};
};

// Made when the library is loaded: a fork during a first use would leave the child with a half-made pool that it waits for in vain.
[[maybe_unused]] OwnPool& pool_from_the_start = OwnPool::instance();

}  // namespace

CpuExecutor& own_pool() { return OwnPool::instance(); }

}  // namespace ejk
