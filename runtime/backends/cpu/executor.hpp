// Whose threads carry a launch: one interface over our own pool, the program's OpenMP runtime and a pool that the caller hands in.
#pragma once
#include <string>

namespace ejk {

// One participant's part of a piece of work; nothing may be thrown. index: 0 for the caller, then up. together: so many participants,
// this one included, have indices below it and are certain to run at the same time, so that they may wait for one another; 1: nothing is
// promised, the others may come late or never.
using Share = void (*)(void* work, int index, int together);

class CpuExecutor {
 public:
  virtual ~CpuExecutor() = default;
  // Participants that a call from this thread may have now, the caller included; 1: the caller alone.
  virtual int threads() = 0;
  // Calls share on the calling thread and on up to most - 1 others; returns when every call that began has returned. False: nothing was
  // called, there are no others to be had now. Thread-safe; not from inside a share. No allocation after warm-up, unless the pool behind
  // it allocates.
  virtual bool run(int most, Share share, void* work) = 0;
  // The same for work whose participants wait for one another: all that there are, `together` of them, are certain.
  virtual bool run_at_once(int most, Share share, void* work) { return run(most, share, work); }
};

// Our own threads, cpu_threads() - 1 of them, which stay awake for a moment between launches. Whoever finds them at work for somebody
// else gets none. All participants are certain: a share may wait until each of the `together` has begun.
CpuExecutor& own_pool();

// While one lives, launches of this thread go to that executor.
class UseCpuExecutor {
 public:
  explicit UseCpuExecutor(CpuExecutor& executor);
  ~UseCpuExecutor();
  UseCpuExecutor(const UseCpuExecutor&) = delete;
  UseCpuExecutor& operator=(const UseCpuExecutor&) = delete;

 private:
  CpuExecutor* before_;
};

// The one in use here (UseCpuExecutor); else the program's OpenMP runtime, if there is one that counts (openmp_runtime.hpp); else our own
// pool.
CpuExecutor& executor_of_this_thread();
// Our own pool whatever there is (EJKERNEL_EXECUTOR=own).
void use_own_cpu_pool(bool always);
// For `ejk info`: "OpenMP of libtorch_cpu.so (/usr/.../libgomp.so.1), 8 threads".
std::string cpu_executor();

}  // namespace ejk
