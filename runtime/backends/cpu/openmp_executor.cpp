// A parallel region of the program's OpenMP runtime: its threads, which may still spin from its own last region, do our work too.
#include "backends/cpu/openmp_executor.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>

namespace ejk {
namespace {

struct Region {
  const OpenMpRuntime& runtime;
  int most;
  Share share;
  void* work;
};

void take_part(void* data) {
  const auto& region = *static_cast<const Region*>(data);
  const int index = region.runtime.index(), together = std::min(region.runtime.threads(), region.most);
  if (index < together) region.share(region.work, index, together);
}

class OpenMpExecutor final : public CpuExecutor {
 public:
  // Within a parallel region that may not have another inside it, the caller is alone, as the runtime would have it.
  int threads() override {
    const auto* runtime = openmp_runtime();
    if (!runtime) return 1;
    const int level = runtime->active_level();
    return level > 0 && level >= runtime->max_active_levels() ? 1 : runtime->max_threads();
  }

  // The region always has as many threads as the runtime gives by itself: libgomp ends threads that a smaller one has no use for.
  bool run(int most, Share share, void* work) override {
    const auto* runtime = openmp_runtime();
    if (!runtime || taken_.exchange(true, std::memory_order_acquire)) return false;
    Region region{*runtime, most, share, work};
    runtime->parallel(take_part, &region, 0, 0);
    taken_.store(false, std::memory_order_release);
    return true;
  }

  void forget_callers() { taken_.store(false); }

 private:
  std::atomic<bool> taken_{false};  // each thread of the program has a team of its own: two at once would be too many threads
};

OpenMpExecutor openmp;

[[maybe_unused]] const int watches_forks = pthread_atfork(nullptr, nullptr, [] { openmp.forget_callers(); });

}  // namespace

CpuExecutor& openmp_executor() { return openmp; }

}  // namespace ejk
