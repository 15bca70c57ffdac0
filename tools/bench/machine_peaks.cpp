// Peaks by running the loops on every thread at once.
#include "bench/machine_peaks.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "backends/cpu/cpu_features.hpp"
#include "bench/peak_kernels.hpp"

namespace ejk::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int rounds_alone = 8;
constexpr std::int64_t fma_rounds = 1000000;  // about 5 ms
constexpr double least_buffer = 256.0 * (1 << 20);
std::atomic<std::uint64_t> sink;  // results go here, so that no loop is left out

double memory_bytes() { return static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)); }

// Twice the last cache, so that a second pass finds nothing of the first; at most a quarter of the free memory.
std::size_t buffer_bytes() {
  const double wanted = std::max(least_buffer, 2 * last_cache_bytes());
  return static_cast<std::size_t>(std::min(wanted, memory_bytes() / 4)) / 8192 * 8192;
}

// Seconds of the fastest of some rounds of work(thread) on all threads at once, begun together, from the first start to the last end.
double fastest(int threads, int rounds, const std::function<void(int)>& work) {
  double best = 1e30;
  Clock::time_point start;
  std::barrier begin(threads, [&]() noexcept { start = Clock::now(); });
  std::barrier end(threads, [&]() noexcept { best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count()); });
  const auto loop = [&](int thread) {
    for (int round = 0; round < rounds; ++round) {
      begin.arrive_and_wait();
      work(thread);
      end.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(loop, thread);
  loop(0);
  others.clear();
  return best;
}

}  // namespace

double last_cache_bytes() { return static_cast<double>(std::max({cpu_cache_bytes(4), cpu_cache_bytes(3), cpu_cache_bytes(2)})); }

// A part for each thread.
struct PeakMeter::Buffer {
  struct Freed {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Pages = std::unique_ptr<std::byte, Freed>;
  static Pages allocate(std::size_t bytes) {
    Pages memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    if (!memory) throw std::bad_alloc();
    return memory;
  }
  std::size_t part;
  Pages memory;
  std::byte* of(int thread) const { return memory.get() + static_cast<std::size_t>(thread) * part; }
};

PeakMeter::PeakMeter(int threads) : peaks_{threads, peak_kernels().name} {
  const std::size_t part = buffer_bytes() / static_cast<std::size_t>(threads) / 8192 * 8192,
                    total = part * static_cast<std::size_t>(threads);
  buffer_ = std::make_unique<Buffer>(Buffer{part, Buffer::allocate(total)});
  peaks_.buffer = static_cast<double>(total);
  fastest(threads, 1, [&](int thread) { std::memset(buffer_->of(thread), 1, part); });  // pages lie near the thread that reads them
}

PeakMeter::~PeakMeter() = default;

void PeakMeter::measure(int rounds) {
  const auto& kernels = peak_kernels();
  const std::size_t part = buffer_->part;
  const auto raise = [&](double& peak, double work, const std::function<void(int)>& loop) {
    peak = std::max(peak, work / fastest(peaks_.threads, rounds, loop));
  };
  raise(peaks_.flops, static_cast<double>(kernels.flops_a_round) * static_cast<double>(fma_rounds) * peaks_.threads,
        [&](int) { sink += static_cast<std::uint64_t>(kernels.multiply_add(fma_rounds)); });
  raise(peaks_.read, peaks_.buffer, [&](int thread) { sink += kernels.read(buffer_->of(thread), part); });
  raise(peaks_.copy, peaks_.buffer, [&](int thread) { std::memcpy(buffer_->of(thread), buffer_->of(thread) + part / 2, part / 2); });
}

Peaks measure_peaks(int threads) {
  PeakMeter meter(threads);
  meter.measure(rounds_alone);
  return meter.peaks();
}

}  // namespace ejk::tools
