// Stacks by mmap, switches by the C library.
#include "backends/cpu/work_item.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace ejk {
namespace {

constexpr std::size_t guard_bytes = 65536;                   // a page, where pages are large
constexpr std::size_t stack_bytes = std::size_t{512} << 10;  // only what is touched takes memory

}  // namespace

WorkItem::WorkItem() {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
  void* memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<char*>(memory);
  if (mprotect(memory, guard_bytes, PROT_NONE) == 0) return;
  munmap(memory, guard_bytes + stack_bytes);
  throw std::bad_alloc();
}

WorkItem::~WorkItem() { munmap(stack_, guard_bytes + stack_bytes); }

void WorkItem::start(CpuEntry entry, void* const* arguments, const Group& place) {
  entry_ = entry;
  arguments_ = arguments;
  place_ = place;
  ended_ = false;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_ + guard_bytes;
  inside_.uc_stack.ss_size = stack_bytes;
  inside_.uc_link = nullptr;
  const std::uint64_t self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes ints
  makecontext(&inside_, reinterpret_cast<void (*)()>(run), 2, static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

void WorkItem::run(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<WorkItem*>(static_cast<std::uintptr_t>(std::uint64_t{high} << 32 | low));  // NOLINT: start() took it apart
  self.entry_(self.arguments_, &self.place_);
  self.ended_ = true;
  self.suspend();
}

void WorkItem::resume() { swapcontext(&outside_, &inside_); }
void WorkItem::suspend() { swapcontext(&inside_, &outside_); }

}  // namespace ejk
