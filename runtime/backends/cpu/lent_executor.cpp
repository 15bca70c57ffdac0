// A job that late tasks outlive: it is open while the caller works, and its memory goes with the last task.
#include "backends/cpu/lent_executor.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>

#include "backends/cpu/pause.hpp"

namespace ejk {
namespace {

constexpr int spins_for_tasks = 2000;  // then the caller sleeps until the last participant leaves
constexpr std::uint32_t open_bit = 1u << 31;

class Job {
 public:
  // nullptr: no memory.
  static Job* make(int others, Share share, void* work, LentExecutor::Schedule schedule, void* context) {
    auto job = std::unique_ptr<Job>(new (std::nothrow) Job(others, share, work, schedule, context));
    return job && job->parts_ ? job.release() : nullptr;
  }

  void run() {
    call(0);
    call(1);
    share_(work_, 0, 1);
    state_.fetch_and(~open_bit, std::memory_order_acq_rel);
    for (int spins = 0;; ++spins) {
      const auto state = state_.load(std::memory_order_acquire);
      if (state == 0) break;
      if (spins < spins_for_tasks)
        pause_cpu();
      else
        state_.wait(state, std::memory_order_acquire);
    }
    release();
  }

 private:
  struct Part {
    Job* job;
    int index;
  };

  Job(int others, Share share, void* work, LentExecutor::Schedule schedule, void* context)
      : others_(others),
        share_(share),
        work_(work),
        schedule_(schedule),
        context_(context),
        parts_(new (std::nothrow) Part[static_cast<std::size_t>(others)]) {}

  // Only while the job is open and the calling thread takes part in it: later the context may be gone.
  void call(int index) {
    if (index >= others_) return;
    parts_[static_cast<std::size_t>(index)] = {this, index};
    users_.fetch_add(1, std::memory_order_relaxed);
    // Never the last user: the one who calls is another.
    if (schedule_(context_, &Job::begin, &parts_[static_cast<std::size_t>(index)]) != 0) users_.fetch_sub(1, std::memory_order_relaxed);
  }

  static void begin(void* data) {
    const auto part = *static_cast<const Part*>(data);
    part.job->join(part.index);
    part.job->release();
  }

  void join(int index) {
    auto state = state_.load(std::memory_order_acquire);
    do {
      if (!(state & open_bit)) return;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
    call(2 * index + 2);  // a tree: the caller does not wake all the others one after the other
    call(2 * index + 3);
    share_(work_, index + 1, 1);
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_all();
  }

  void release() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const int others_;
  const Share share_;
  void* const work_;
  const LentExecutor::Schedule schedule_;
  void* const context_;
  std::unique_ptr<Part[]> parts_;
  std::atomic<int> users_{1};                               // the caller, and tasks that have not ended
  alignas(64) std::atomic<std::uint32_t> state_{open_bit};  // and how many others are at work
};

// Participants of work that waits for itself: whoever has begun when the caller stops waiting is in, the others find it closed.
class Gathering {
 public:
  Gathering(Share share, void* work) : share_(share), work_(work) {}

  void run(int others, LentExecutor::Schedule schedule, void* context) {
    for (int i = 0; i < others; ++i) {
      users_.fetch_add(1, std::memory_order_relaxed);
      if (schedule(context, &Gathering::begin, this) != 0) users_.fetch_sub(1, std::memory_order_relaxed);
    }
    wait_for(others);
    const auto in = state_.fetch_and(~open_bit, std::memory_order_acq_rel) & ~open_bit;
    share_(work_, 0, static_cast<int>(in) + 1);
    for (auto left = left_.load(std::memory_order_acquire); left != in; left = left_.load(std::memory_order_acquire))
      left_.wait(left, std::memory_order_acquire);
    release();
  }

 private:
  static constexpr auto patience = std::chrono::microseconds(50);

  void wait_for(int others) const {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (static_cast<int>(state_.load(std::memory_order_acquire) & ~open_bit) < others && std::chrono::steady_clock::now() < deadline)
      pause_cpu();
  }

  static void begin(void* data) {
    auto& gathering = *static_cast<Gathering*>(data);
    // A pool that runs tasks where they are scheduled would have the caller wait for itself.
    if (std::this_thread::get_id() != gathering.caller_) gathering.join();
    gathering.release();
  }

  void join() {
    auto state = state_.load(std::memory_order_acquire);
    do {
      if (!(state & open_bit)) return;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
    const auto index = static_cast<int>(state & ~open_bit) + 1;
    while ((state = state_.load(std::memory_order_acquire)) & open_bit) pause_cpu();
    share_(work_, index, static_cast<int>(state) + 1);
    left_.fetch_add(1, std::memory_order_acq_rel);
    left_.notify_one();
  }

  void release() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const Share share_;
  void* const work_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<int> users_{1};                               // the caller, and tasks that have not ended
  alignas(64) std::atomic<std::uint32_t> state_{open_bit};  // and how many others are in
  std::atomic<std::uint32_t> left_{0};
};

}  // namespace

bool LentExecutor::run_at_once(int most, Share share, void* work) {
  auto* gathering = new (std::nothrow) Gathering(share, work);
  if (!gathering) return false;
  gathering->run(most - 1, schedule_, context_);
  return true;
}

bool LentExecutor::run(int most, Share share, void* work) {
  auto* job = Job::make(most - 1, share, work, schedule_, context_);
  if (!job) return false;
  job->run();
  return true;
}

}  // namespace ejk
