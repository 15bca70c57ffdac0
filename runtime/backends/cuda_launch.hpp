// Putting one grid on a stream.
#pragma once
#include "backends/cuda_module.hpp"

namespace ejk::cuda {

// request.entry is an Entry. No allocation and no lock but in an entry's first launch on a device. Throws DeviceError.
void launch(Platform& platform, const LaunchRequest& request, void* stream);

}  // namespace ejk::cuda
