// The driver's pool takes 1.2 us a call. A kept piece takes nothing, and one serves all threads: whoever has it puts launches on the
// default stream and gives it back, so that the next one's come after them. That stream alone is never captured, and never another's after
// its end.
#include "backends/gpu/gpu_workspace.hpp"

#include <fmt/format.h>

#include <bit>

#include "backends/gpu/gpu_memory.hpp"

namespace ejk::gpu {
namespace {

Context current_context(const DriverFunctions& call) {
  Context context = nullptr;
  if (call.current_context) call.current_context(&context);
  return context;
}

Result allocate(const DriverFunctions& call, Device& device, Address* address, std::int64_t bytes, Stream stream) {
  const RelaxedCapture relaxed(call);  // the first use of a pool does what a capture forbids
  device.keep_pool();
  return call.allocate_async(address, static_cast<std::size_t>(bytes), stream);
}

// By its holder. Without memory if the driver gives none.
void grow(const DriverFunctions& call, Device& device, Context context, std::int64_t bytes) {
  auto& kept = device.kept;
  const auto old = kept.address.exchange(0, std::memory_order_relaxed);  // before another may be given that address
  if (old) call.free_async(old, nullptr);
  const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
  Address address = 0;
  const bool made = allocate(call, device, &address, size, nullptr) == success;
  kept.context = context;
  kept.bytes = made ? size : 0;
  kept.address.store(made ? address : 0, std::memory_order_relaxed);
}

// 0: another thread has it, it is another context's, or the driver has no memory.
Address take_kept(const DriverFunctions& call, Device& device, std::int64_t bytes) {
  auto& kept = device.kept;
  if (kept.taken.exchange(true, std::memory_order_acquire)) return 0;
  auto* const context = current_context(call);  // each has a default stream of its own
  const bool ours = kept.bytes == 0 || kept.context == context;
  if (ours && kept.bytes < bytes) grow(call, device, context, bytes);
  if (ours && kept.bytes) return kept.address.load(std::memory_order_relaxed);
  kept.taken.store(false, std::memory_order_release);
  return 0;
}

}  // namespace

void* acquire_workspace(Platform& platform, int ordinal, void* stream, std::int64_t bytes) {
  auto& device = platform.usable(ordinal);
  if (!device.facts.pools)
    throw DeviceError(fmt::format("{} has no memory pools, which this kernel's workspace of {} bytes needs", device.facts.name, bytes));
  const CurrentDevice current(platform.call, device);
  if (!stream && bytes <= most_kept_workspace)
    if (const auto kept = take_kept(platform.call, device, bytes)) return pointer_to(kept);
  Address address = 0;
  if (const auto result = allocate(platform.call, device, &address, bytes, static_cast<Stream>(stream)))
    fail_allocation(platform.call, device, result, "a workspace", bytes);
  return pointer_to(address);
}

void release_workspace(Platform& platform, int ordinal, void* stream, void* workspace) noexcept {
  try {
    auto& device = platform.device(ordinal);
    if (device.kept.address.load(std::memory_order_relaxed) == address_of(workspace))
      return device.kept.taken.store(false, std::memory_order_release);
    const CurrentDevice current(platform.call, device);
    platform.call.free_async(address_of(workspace), static_cast<Stream>(stream));  // what is wrong shows in the next launch
  } catch (const DeviceError&) {
    // The context could not be made current, so it is lost, and the memory with it.
  }
}

void zero(Platform& platform, int ordinal, void* stream, void* memory, std::int64_t bytes) {
  auto& device = platform.usable(ordinal);
  const CurrentDevice current(platform.call, device);
  const auto size = static_cast<std::size_t>(bytes);
  if (const auto result = platform.call.fill_async(address_of(memory), 0, size, static_cast<Stream>(stream)))
    device.fail(result, fmt::format("zeroing {} bytes of a workspace on {}", bytes, device.label));
}

}  // namespace ejk::gpu
