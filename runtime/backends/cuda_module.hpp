// Loaded cubins and their entries: one library serves every device of the process.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda_platform.hpp"

namespace ejk::cuda {

struct Entry {
  // What has been arranged for the entry's launches on one device.
  struct Ready {
    std::atomic<std::int64_t> shared_bytes{-1};  // of dynamic shared memory, at most; -1: not even loaded there
    std::atomic<bool> wide_clusters{false};      // of more than 8 blocks
  };
  Entry(Kernel made, const char* name, int devices) : kernel(made), label(name), ready(static_cast<std::size_t>(devices)) {}
  const Kernel kernel;
  const char* const label;  // "image/entry"; lives for ever
  std::vector<Ready> ready;
};

// Checks the bytes before the driver sees them: whole, a cubin, for the image's arch, which a device here runs. Libraries stay loaded
// until the process ends, since work in flight and captured graphs may use them; the same bytes are loaded once. Throws
// std::runtime_error (the binary is of no use) or DeviceError.
std::unique_ptr<Module> load_cubin(Platform& platform, const std::string& bytes, const spec::Image& image);

}  // namespace ejk::cuda
