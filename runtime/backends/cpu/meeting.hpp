// A reusable barrier of threads. What the last one to arrive finds is told to all of them.
#pragma once
#include <atomic>
#include <cstdint>

#include "backends/cpu/pause.hpp"

namespace ejk {

class Meeting {
 public:
  enum class Verdict { go_on, all_ended, failed };

  // judge() is called by the last of so many participants.
  template <class Judge>
  Verdict arrive(int participants, Judge judge) {
    const auto turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == participants) {
      verdict_ = judge();
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      turn_.notify_all();
    } else {
      for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; ++spins)
        spins < spins_before_sleep ? pause_cpu() : turn_.wait(turn, std::memory_order_acquire);
    }
    return verdict_;
  }
  std::uint32_t turns() const { return turn_.load(std::memory_order_relaxed); }

 private:
  static constexpr int spins_before_sleep = 4000;  // about 50 us: a step of a recurrence is shorter
  Verdict verdict_ = Verdict::go_on;               // written before the turn ends, read after it
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> turn_{0};
};

}  // namespace ejk
