// Loaded binaries and their entries, for every device of the process.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/gpu_platform.hpp"

namespace ejk::gpu {

class LoadedBinary;

struct Entry {
  // What has been arranged for the entry's launches on one device.
  struct Ready {
    std::atomic<std::int64_t> shared_bytes{-1};  // of dynamic shared memory, at most; -1: not even loaded there
    std::atomic<bool> wide_clusters{false};      // of more than 8 blocks
    std::atomic<Function> function{nullptr};
  };
  Entry(LoadedBinary& of, Kernel made, const std::string& its_name, const char* its_label, int devices)
      : binary(of), kernel(made), name(its_name), label(its_label), ready(static_cast<std::size_t>(devices)) {}
  LoadedBinary& binary;
  const Kernel kernel;  // CUDA; null in HIP
  const std::string name;
  const char* const label;  // "image/entry"; lives for ever
  std::vector<Ready> ready;
};

// What the vendor's check of a binary found.
struct CheckedBinary {
  std::vector<std::string> kernels;  // names; HIP, whose driver tells them only with a device
  int device = 0;                    // one that runs it
};

// Loads what the vendor has checked. Binaries stay loaded until the process ends, since work in flight and captured graphs may use them;
// the same bytes are loaded once. Throws std::runtime_error (the binary is of no use) or DeviceError.
std::unique_ptr<ejk::Module> load_binary(Platform& platform, const std::string& bytes, const spec::Image& image, CheckedBinary checked);

// The entry's function on the device, which is the current one; loads the binary there if it must. Throws DeviceError.
Function function_on(Device& device, Entry& entry);

}  // namespace ejk::gpu
