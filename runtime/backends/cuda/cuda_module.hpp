// Cubins on NVIDIA's devices.
#pragma once
#include "backends/gpu/gpu_module.hpp"

namespace ejk::cuda {

using namespace gpu;

// Checks the bytes before the driver sees them: whole, a cubin, for the image's arch, which a device here runs. Throws std::runtime_error
// (the binary is of no use) or DeviceError.
std::unique_ptr<ejk::Module> load_cubin(Platform& platform, const std::string& bytes, const spec::Image& image);

}  // namespace ejk::cuda
