// Which executor a thread's launches go to.
#include "backends/cpu/executor.hpp"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "backends/backend.h"
#include "backends/cpu/openmp_executor.hpp"

namespace ejk {
namespace {

thread_local CpuExecutor* given = nullptr;
std::atomic<bool> only_own{false};

}  // namespace

UseCpuExecutor::UseCpuExecutor(CpuExecutor& executor) : before_(std::exchange(given, &executor)) {}
UseCpuExecutor::~UseCpuExecutor() { given = before_; }

void use_own_cpu_pool(bool always) { only_own.store(always, std::memory_order_relaxed); }

CpuExecutor& executor_of_this_thread() {
  if (only_own.load(std::memory_order_relaxed)) return own_pool();
  if (given) return *given;
  return openmp_runtime() ? openmp_executor() : own_pool();
}

std::string cpu_executor() {
  if (only_own.load(std::memory_order_relaxed)) return "own pool (EJKERNEL_EXECUTOR=own)";
  const auto* runtime = openmp_runtime();
  if (!runtime) return "own pool";
  return fmt::format("OpenMP of {} ({}), {} threads", runtime->user, runtime->library, runtime->max_threads());
}

}  // namespace ejk
