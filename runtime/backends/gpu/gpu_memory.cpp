// Plain memory for tensors.
#include "backends/gpu/gpu_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ejk::gpu {
namespace {

std::size_t unsigned_of(std::int64_t bytes) { return static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0)); }

void wait(Platform& platform, Device& device, const char* what) {
  if (const auto result = platform.call.synchronize()) device.fail(result, fmt::format("{} {}", what, device.label));
}

}  // namespace

void fail_allocation(const DriverFunctions& call, Device& device, Result result, const char* what, std::int64_t bytes) {
  std::size_t available = 0, total = 0;
  std::string room;
  if (result == out_of_memory && call.memory_info(&available, &total) == success)
    room = fmt::format(" ({} of {} bytes are free)", available, total);
  device.fail(result, fmt::format("{} of {} bytes on {}{}", what, bytes, device.label, room));
}

void* GpuMemory::allocate(int ordinal, std::int64_t bytes) {
  auto& device = platform_.usable(ordinal);
  const CurrentDevice current(platform_.call, device);
  Address address = 0;
  if (const auto result = platform_.call.allocate(&address, std::max<std::size_t>(unsigned_of(bytes), 1)))
    fail_allocation(platform_.call, device, result, "an allocation", bytes);
  return pointer_to(address);
}

void GpuMemory::free(int ordinal, void* memory) noexcept {
  try {
    const CurrentDevice current(platform_.call, platform_.device(ordinal));
    platform_.call.free(address_of(memory));
  } catch (const DeviceError&) {
    // As above.
  }
}

void GpuMemory::copy_to_device(int ordinal, void* to, const void* from, std::int64_t bytes) {
  auto& device = platform_.usable(ordinal);
  const CurrentDevice current(platform_.call, device);
  wait(platform_, device, "waiting for");
  if (bytes <= 0) return;
  if (const auto result = platform_.call.copy_to_device(address_of(to), from, unsigned_of(bytes)))
    device.fail(result, fmt::format("copying {} bytes to {}", bytes, device.label));
  wait(platform_, device, "waiting for a copy to");
}

void GpuMemory::copy_to_host(int ordinal, void* to, const void* from, std::int64_t bytes) {
  auto& device = platform_.usable(ordinal);
  const CurrentDevice current(platform_.call, device);
  wait(platform_, device, "waiting for");
  if (bytes <= 0) return;
  if (const auto result = platform_.call.copy_to_host(to, address_of(from), unsigned_of(bytes)))
    device.fail(result, fmt::format("copying {} bytes from {}", bytes, device.label));
}

void GpuMemory::synchronize(int ordinal) {
  auto& device = platform_.usable(ordinal);
  const CurrentDevice current(platform_.call, device);
  wait(platform_, device, "waiting for");
}

}  // namespace ejk::gpu
