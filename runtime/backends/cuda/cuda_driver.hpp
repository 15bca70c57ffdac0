// libcuda, NVIDIA's driver library: found at run time.
#pragma once
#include <string>
#include <vector>

#include "backends/gpu/gpu_driver.hpp"

namespace ejk::cuda {

using namespace gpu;
using gpu::Result, gpu::Stream;  // not the public ones

enum DeviceAttribute : int {
  clock_khz = 13,
  multiprocessors = 16,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  capability_major = 75,
  capability_minor = 76,
  shared_bytes_opt_in = 97,
  memory_pools = 115
};

// Inline: a library that stands in libcuda's place has it too.
inline const Vendor& nvidia() {
  static constexpr const char* variables[] = {"CUDA_VISIBLE_DEVICES"};
  // CUDA driver API, CUresult: "the process must be terminated and relaunched".
  static constexpr Result faults[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
  static const Vendor vendor = {
      "cuda",
      "CUDA",
      "sm",
      variables,
      "compute-sanitizer names the faulting access",
      faults,
      {clock_khz, multiprocessors, memory_clock_khz, memory_bus_bits, l2_bytes, capability_major, capability_minor, shared_bytes_opt_in,
       memory_pools},
      INT64_MAX,
      {"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuMemcpyDtoDAsync_v2"}};
  return vendor;
}

// File names for the loader, then paths in well-known folders.
std::vector<std::string> driver_candidates();
// The first that loads and has every function. It stays loaded.
Driver load_driver(const std::vector<std::string>& candidates);

}  // namespace ejk::cuda
