// Which of the host's bytes are the emulated device's memory: what its driver has allocated, and the variables of modules.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ejk::ptx {

struct Allocation {
  std::uint64_t address = 0, bytes = 0;
  bool holds(std::uint64_t at, std::uint64_t its_bytes) const {
    return at >= address && its_bytes <= bytes && at - address <= bytes - its_bytes;
  }
};

// Any thread may call any of these. Each thread looks things up in a copy of its own, renewed when the list has changed.
class Allocations {
 public:
  void add(const void* address, std::size_t bytes);
  void remove(const void* address);  // of nothing that was added: does nothing
  // The one that holds the byte at that address, or null. Valid until the next call in this thread.
  const Allocation* find(std::uint64_t address);
  // The one whose begin or end is nearest to the address, or null if there is none: for messages.
  const Allocation* nearest(std::uint64_t address);

 private:
  struct Seen {  // by a thread
    const Allocations* of = nullptr;
    std::uint64_t generation = 0;
    std::vector<Allocation> list;
    std::size_t last = 0;  // found last time
  };
  Seen& seen();

  std::mutex mutex_;
  std::vector<Allocation> list_;  // by address
  std::atomic<std::uint64_t> generation_{1};
};

Allocations& allocations();  // the process's

}  // namespace ejk::ptx
