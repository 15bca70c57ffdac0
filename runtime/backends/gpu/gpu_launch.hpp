// Putting one grid on a stream.
#pragma once
#include "backends/gpu/gpu_module.hpp"

namespace ejk::gpu {

// request.entry is an Entry. No allocation and no lock but in an entry's first launch on a device. Throws DeviceError.
void launch(Platform& platform, const LaunchRequest& request, void* stream);
// So many blocks of that launch fit the device at once, by the driver's count of what one processor holds; clusters are not in it.
std::int64_t resident_blocks(Platform& platform, const LaunchRequest& request);
// Why the driver places no cluster of that launch; empty where it does, or there are none.
std::string why_not_placed(Platform& platform, const LaunchRequest& request);

}  // namespace ejk::gpu
