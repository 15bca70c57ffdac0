// libamdhip64, AMD's run-time library, as far as ejk uses it: found at run time.
#pragma once
#include <string>
#include <vector>

#include "backends/gpu/gpu_driver.hpp"

namespace ejk::hip {

using namespace gpu;
using gpu::Result, gpu::Stream;  // not the public ones

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

// Inline: a library that stands in libamdhip64's place has it too.
inline const Vendor& amd() {
  static constexpr const char* variables[] = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
  // hipError_t: an ECC error, an illegal address, a time-out, a destroyed context, an assertion, a failed launch. Most faults end the
  // process without one.
  static constexpr Result faults[] = {214, 700, 702, 709, 710, 719};
  static const Vendor vendor = {
      "hip",
      "HIP",
      "cu",
      variables,
      "with AMD_LOG_LEVEL=3 the run-time library names the kernel",
      faults,
      {clock_khz, multiprocessors, memory_clock_khz, memory_bus_bits, l2_bytes, capability_major, capability_minor, shared_bytes,
       memory_pools},
      0xffffffff,  // the dispatch packet counts threads in 32 bits
      {"hipEventCreateWithFlags", "hipEventDestroy", "hipEventRecord", "hipEventSynchronize", "hipEventElapsedTime", "hipMemcpyDtoDAsync"}};
  return vendor;
}

// In order: $ROCM_PATH and $HIP_PATH, the loader's own path, /opt/rocm.
std::vector<std::string> driver_candidates();
// The first that loads and has every function. It stays loaded.
Driver load_driver(const std::vector<std::string>& candidates);

// That of this process. The library is large, and is only loaded where AMD's kernel driver is, or where the process has it already.
Driver find_driver();

std::string version_text(int version);  // "HIP 6.3" of 60342134

}  // namespace ejk::hip
