// A pool that the caller hands in with a call, as XLA's: it takes tasks and guarantees nothing about when they run.
#pragma once
#include "backends/cpu/executor.hpp"

namespace ejk {

// Others join if their tasks come before the caller has taken all the work; those that come later find it closed. So the caller, who may
// be a thread of that very pool, never waits for a task that has not begun. None is certain: run()'s together is 1. run_at_once() gathers
// those whose tasks begin within 50 us: so long the caller waits for them.
class LentExecutor final : public CpuExecutor {
 public:
  // 0: task(data) will be called once, by any thread, at any time, also before schedule returns. context is not used after run() has
  // returned; the tasks may come later.
  using Schedule = int (*)(void* context, void (*task)(void* data), void* data);

  LentExecutor(int threads, Schedule schedule, void* context) : threads_(threads), schedule_(schedule), context_(context) {}
  int threads() override { return threads_; }
  bool run(int most, Share share, void* work) override;
  bool run_at_once(int most, Share share, void* work) override;

 private:
  int threads_;
  Schedule schedule_;
  void* context_;
};

}  // namespace ejk
