// The calling thread's workspace.
#include "backends/cpu/host_workspace.hpp"

#include <cstdlib>
#include <memory>
#include <new>

namespace ejk {

void* host_workspace(std::int64_t bytes) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> buffer;
  thread_local std::int64_t capacity = 0;
  if (bytes > capacity) {
    buffer.reset();
    capacity = 0;
    const auto rounded = (bytes + 4095) / 4096 * 4096;
    buffer.reset(std::aligned_alloc(4096, static_cast<std::size_t>(rounded)));
    if (!buffer) throw std::bad_alloc();
    capacity = rounded;
  }
  return buffer.get();
}

}  // namespace ejk
