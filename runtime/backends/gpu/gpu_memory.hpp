// Plain memory of a vendor's devices, for tools and tests.
#pragma once
#include "backends/gpu/gpu_platform.hpp"

namespace ejk::gpu {

// Throws DeviceError: what was asked for, and how much there is.
[[noreturn]] void fail_allocation(const DriverFunctions& call, Device& device, Result result, const char* what, std::int64_t bytes);

class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(Platform& platform) : platform_(platform) {}
  void* allocate(int device, std::int64_t bytes) override;
  void free(int device, void* memory) noexcept override;
  void copy_to_device(int device, void* to, const void* from, std::int64_t bytes) override;
  void copy_to_host(int device, void* to, const void* from, std::int64_t bytes) override;
  void synchronize(int device) override;

 private:
  Platform& platform_;
};

}  // namespace ejk::gpu
