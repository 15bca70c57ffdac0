// A condition variable that waits by the steady clock, which nobody sets: glibc 2.28, where the wheel runs, lacks what
// std::condition_variable takes for that (pthread_cond_clockwait), but not a clock of the condition's own.
#pragma once
#include <pthread.h>
#include <time.h>

#include <chrono>
#include <mutex>

namespace ejk {

class SteadyCondition {
 public:
  SteadyCondition() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  SteadyCondition(const SteadyCondition&) = delete;
  SteadyCondition& operator=(const SteadyCondition&) = delete;
  ~SteadyCondition() { pthread_cond_destroy(&condition_); }

  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

  // What `done` says, once it is true or the time is over.
  template <class Done>
  bool wait_until(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point deadline, Done done) {
    const auto since = deadline.time_since_epoch();  // of CLOCK_MONOTONIC
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    const timespec end{static_cast<time_t>(seconds.count()), static_cast<long>(std::chrono::nanoseconds(since - seconds).count())};
    while (!done()) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &end);
    }
    return true;
  }

 private:
  pthread_cond_t condition_;
};

}  // namespace ejk
