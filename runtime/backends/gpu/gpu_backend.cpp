// Probing, and calls into the files of each task.
#include "backends/gpu/gpu_backend.hpp"

#include <fmt/format.h>

#include <cctype>

#include "backends/gpu/gpu_launch.hpp"
#include "backends/gpu/gpu_timer.hpp"
#include "backends/gpu/gpu_workspace.hpp"

namespace ejk::gpu {
namespace {

// "cuda-nvidia-h200-132sm", "hip-amd-instinct-mi300x-304cu"
std::string fingerprint_of(const Vendor& vendor, const DeviceFacts& facts) {
  std::string name;
  for (const char c : facts.name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte))
      name += static_cast<char>(std::tolower(byte));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return fmt::format("{}-{}{}{}{}", vendor.platform, name, name.ends_with('-') ? "" : "-", facts.sms, vendor.processor);
}

}  // namespace

Platform& GpuBackend::devices() {
  if (auto* known = known_.load(std::memory_order_acquire)) return *known;
  std::call_once(once_, [this] {
    devices_ = std::make_unique<Platform>(find_driver_());
    memory_ = std::make_unique<GpuMemory>(*devices_);
    known_.store(devices_.get(), std::memory_order_release);
  });
  return *devices_;
}

Probe GpuBackend::probe(std::span<const spec::Arch* const> archs, int ordinal) {
  Probe probe;
  auto& all = devices();
  if (all.count() == 0) {
    probe.why_not = all.why_not();
    return probe;
  }
  const auto& facts = all.device(ordinal).facts;
  probe.description =
      fmt::format("{}, {:.0f} GiB, {} MHz, {}", device_text(facts), static_cast<double>(facts.memory_bytes) / (std::int64_t{1} << 30),
                  facts.clock_khz / 1000, driver_text(all.driver));
  probe.fingerprint = fingerprint_of(vendor_, facts);
  probe.archs = archs_on(archs, facts);
  probe.available = !probe.archs.empty();
  if (!probe.available)
    probe.why_not = fmt::format("{} {}, which none of the {} {} archs is for", facts.name, arch_text(facts), archs.size(), vendor_.api);
  probe.properties = {{"sms", facts.sms},
                      {"shared_memory", facts.shared_memory},
                      {"l2_bytes", facts.l2_bytes},
                      {"memory_bytes", facts.memory_bytes},
                      {"clock_khz", facts.clock_khz},
                      {"memory_clock_khz", facts.memory_clock_khz},
                      {"memory_bus_bits", facts.bus_bits}};
  return probe;
}

void GpuBackend::launch(const LaunchRequest& request, void* stream) { gpu::launch(devices(), request, stream); }

// The default stream of a thread that captures another one answers with an error.
bool GpuBackend::capturing(int device, void* stream) {
  auto& all = devices();
  const CurrentDevice current(all.call, all.device(device));
  int status = 0;
  return all.call.is_capturing(static_cast<Stream>(stream), &status) != success || status != 0;
}

std::int64_t GpuBackend::resident_blocks(const LaunchRequest& request) { return gpu::resident_blocks(devices(), request); }

std::string GpuBackend::why_not_placed(const LaunchRequest& request) { return gpu::why_not_placed(devices(), request); }

void* GpuBackend::acquire_workspace(int device, void* stream, std::int64_t bytes) {
  return gpu::acquire_workspace(devices(), device, stream, bytes);
}

void GpuBackend::release_workspace(int device, void* stream, void* workspace) noexcept {
  gpu::release_workspace(devices(), device, stream, workspace);
}

void GpuBackend::zero(int device, void* stream, void* memory, std::int64_t bytes) { gpu::zero(devices(), device, stream, memory, bytes); }

DeviceMemory* GpuBackend::memory() {
  devices();
  return memory_.get();
}

std::unique_ptr<DeviceTimer> GpuBackend::timer(int device) {
  return make_timer(devices(), device, [this](const DeviceFacts& facts) { return empty_kernel(facts); });
}

}  // namespace ejk::gpu
