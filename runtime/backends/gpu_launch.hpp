// Putting one grid on a stream.
#pragma once
#include "backends/gpu_module.hpp"

namespace ejk::gpu {

// request.entry is an Entry. No allocation and no lock but in an entry's first launch on a device. Throws DeviceError.
void launch(Platform& platform, const LaunchRequest& request, void* stream);

}  // namespace ejk::gpu
