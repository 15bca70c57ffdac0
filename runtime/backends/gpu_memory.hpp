// Memory of a vendor's devices: scratch in stream order, and plain memory for tools and tests.
#pragma once
#include "backends/gpu_platform.hpp"

namespace ejk::gpu {

void* acquire_workspace(Platform& platform, int device, void* stream, std::int64_t bytes);
void release_workspace(Platform& platform, int device, void* stream, void* workspace) noexcept;

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
