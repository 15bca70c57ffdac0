// libamdhip64, AMD's run-time library, as far as ejk uses it: found at run time.
#pragma once
#include <string>
#include <vector>

#include "backends/gpu_driver.hpp"

namespace ejk::hip {

using namespace gpu;

// hipDeviceAttribute_t; the same in HIP 5 and 6.
enum DeviceAttribute : int {
  clock_khz = 5,
  l2_bytes = 19,
  capability_major = 23,
  memory_bus_bits = 59,
  memory_clock_khz = 60,
  capability_minor = 61,
  multiprocessors = 63,
  shared_bytes = 74,
  memory_pools = 88
};

const Vendor& amd();

// In order: $ROCM_PATH and $HIP_PATH, the loader's own path, /opt/rocm.
std::vector<std::string> driver_candidates();
// The first that loads and has every function. It stays loaded.
Driver load_driver(const std::vector<std::string>& candidates);

// That of this process. The library is large, and is only loaded where AMD's kernel driver is, or where the process has it already.
Driver find_driver();

std::string version_text(int version);  // "HIP 6.3" of 60342134

}  // namespace ejk::hip
