// What a device is called: its kind, its platform, and the fingerprint that records and recorded calls are found by.
#pragma once
#include <string>

#include "ejk/result.hpp"
#include "ejk/tensor.hpp"

namespace ejk {

// The device in words: "NVIDIA H200, compute capability 9.0, ...". An error if ejk found no such device, with the reason.
EJK_API Result<std::string> device_kind(Device device = {});

// "cpu", "gpu", or "unknown" for what is neither (the emulator). Needs no device.
EJK_API std::string get_device_platform(Device device = {});

// "cpu-avx512-2t", "cuda-nvidia-h200-132sm": equal where tuned configs may be shared. An error if ejk found no such device.
EJK_API Result<std::string> device_fingerprint(Device device = {});

}  // namespace ejk
