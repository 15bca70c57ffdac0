// A backend of a GPU vendor: what CUDA's and HIP's have alike. Devices are looked for once, when first asked for.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/gpu_memory.hpp"
#include "backends/gpu/gpu_platform.hpp"

namespace ejk::gpu {

class GpuBackend : public Backend {
 public:
  // Called when first needed, once.
  GpuBackend(const Vendor& vendor, Driver (*find_driver)()) : vendor_(vendor), find_driver_(find_driver) {}

  std::string platform() const override { return vendor_.platform; }
  int device_count() override { return devices().count(); }
  Probe probe(std::span<const spec::Arch* const> archs, int ordinal) override;
  void launch(const LaunchRequest& request, void* stream) override;
  bool capturing(int device, void* stream) override;
  std::int64_t resident_blocks(const LaunchRequest& request) override;
  std::string why_not_placed(const LaunchRequest& request) override;
  void* acquire_workspace(int device, void* stream, std::int64_t bytes) override;
  void release_workspace(int device, void* stream, void* workspace) noexcept override;
  void zero(int device, void* stream, void* memory, std::int64_t bytes) override;
  DeviceMemory* memory() override;
  std::unique_ptr<DeviceTimer> timer(int device) override;

 protected:
  Platform& devices();
  // "H100, compute capability 9.0": what a person reads of a device first.
  virtual std::string device_text(const DeviceFacts& facts) const = 0;
  virtual std::string arch_text(const DeviceFacts& facts) const = 0;  // "has compute capability 9.0"
  // Full names of those of `archs` that the device runs, most specific first.
  virtual std::vector<std::string> archs_on(std::span<const spec::Arch* const> archs, const DeviceFacts& facts) const = 0;
  virtual std::string driver_text(const Driver& driver) const = 0;  // "driver 580.65.06, CUDA 13.0"
  // A binary for that device, with the one entry `nothing`, which does nothing. Throws DeviceError.
  virtual std::string empty_kernel(const DeviceFacts& facts) const = 0;

 private:
  const Vendor& vendor_;
  Driver (*const find_driver_)();
  std::once_flag once_;
  std::atomic<Platform*> known_{nullptr};
  std::unique_ptr<Platform> devices_;
  std::unique_ptr<GpuMemory> memory_;
};

}  // namespace ejk::gpu
