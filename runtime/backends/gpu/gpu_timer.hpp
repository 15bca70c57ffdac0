// A device's own clock: events on a stream.
#pragma once
#include <functional>
#include <string>

#include "backends/gpu/gpu_platform.hpp"

namespace ejk::gpu {

// What the driver loads, as bytes, with the one entry `nothing` that does nothing. Throws DeviceError.
using EmptyKernel = std::function<std::string(const DeviceFacts& device)>;

// The device's context is current on the calling thread while the timer lives, as it is in programs that use the vendor's run-time library:
// use it on that thread only. Throws DeviceError.
std::unique_ptr<DeviceTimer> make_timer(Platform& platform, int ordinal, EmptyKernel empty_kernel);

}  // namespace ejk::gpu
