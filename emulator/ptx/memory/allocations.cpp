// The list of allocations: kept in the order of addresses, looked up in a thread's own copy.
#include "emulator/ptx/memory/allocations.hpp"

#include <algorithm>

namespace ejk::ptx {
namespace {

bool begins_after(std::uint64_t address, const Allocation& allocation) { return address < allocation.address; }

std::uint64_t distance(const Allocation& allocation, std::uint64_t address) {
  if (address < allocation.address) return allocation.address - address;
  const auto end = allocation.address + allocation.bytes;
  return address < end ? 0 : address - end;
}

}  // namespace

void Allocations::add(const void* address, std::size_t bytes) {
  if (!bytes) return;
  const Allocation made{reinterpret_cast<std::uintptr_t>(address), bytes};
  const std::lock_guard lock(mutex_);
  list_.insert(std::upper_bound(list_.begin(), list_.end(), made.address, begins_after), made);
  ++generation_;
}

void Allocations::remove(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(list_.begin(), list_.end(), [&](const Allocation& each) { return each.address == at; });
  if (found == list_.end()) return;
  list_.erase(found);
  ++generation_;
}

Allocations::Seen& Allocations::seen() {
  thread_local Seen seen;
  if (seen.of == this && seen.generation == generation_.load(std::memory_order_acquire)) return seen;
  const std::lock_guard lock(mutex_);
  seen = {this, generation_.load(), list_, 0};
  return seen;
}

const Allocation* Allocations::find(std::uint64_t address) {
  auto& mine = seen();
  if (mine.last < mine.list.size() && mine.list[mine.last].holds(address, 1)) return &mine.list[mine.last];
  const auto after = std::upper_bound(mine.list.begin(), mine.list.end(), address, begins_after);
  if (after == mine.list.begin() || !(after - 1)->holds(address, 1)) return nullptr;
  mine.last = static_cast<std::size_t>(after - mine.list.begin() - 1);
  return &mine.list[mine.last];
}

const Allocation* Allocations::nearest(std::uint64_t address) {
  const auto& list = seen().list;
  const auto found = std::min_element(
      list.begin(), list.end(), [&](const Allocation& a, const Allocation& b) { return distance(a, address) < distance(b, address); });
  return found == list.end() ? nullptr : &*found;
}

Allocations& allocations() {
  static auto* the = new Allocations;  // never destroyed: threads may still run kernels while the process ends
  return *the;
}

}  // namespace ejk::ptx
