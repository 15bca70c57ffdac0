// A driver in libcuda's place whose devices are this emulator, and a compiler in NVRTC's place that stops at PTX.
#pragma once
#include "backends/cuda/cuda_driver.hpp"
#include "backends/cuda/nvrtc.hpp"

namespace ejk::ptx {

// One device of compute capability 9.0 with few SMs. Every call returns when its work is done.
gpu::Driver driver();

// NVRTC, whose "cubins" are ELF files around PTX. If no NVRTC is found, why_not says so.
const cuda::Nvrtc& compiler();

// The PTX of such a file; empty: it has none.
std::string ptx_of(const void* cubin);

}  // namespace ejk::ptx
