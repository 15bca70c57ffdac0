// Scratch memory that grows in whole pages.
#include "backends/process/scratch.hpp"

#include <cstdlib>
#include <new>

namespace ejk {

static constexpr std::size_t most_bytes = std::size_t{1} << 38;  // a thread: more is a mistake in a size, whatever malloc would say

Scratch::~Scratch() { std::free(memory_); }

void* Scratch::at_least(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > bytes_) {
    if (bytes > most_bytes) throw std::bad_alloc();
    const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
    std::free(memory_);
    bytes_ = 0;
    memory_ = std::aligned_alloc(64, rounded);
    if (!memory_) throw std::bad_alloc();
    bytes_ = rounded;
  }
  return memory_;
}

Scratch& Scratch::nested() {
  if (!nested_) nested_ = std::make_unique<Scratch>();
  return *nested_;
}

}  // namespace ejk
