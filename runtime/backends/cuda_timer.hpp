// A device's own clock: events on a stream.
#pragma once
#include "backends/cuda_platform.hpp"

namespace ejk::cuda {

// The device's context is current on the calling thread while the timer lives, as it is in programs that use CUDA's run-time library: use
// it on that thread only. Throws DeviceError.
std::unique_ptr<DeviceTimer> make_timer(Platform& platform, int ordinal);

}  // namespace ejk::cuda
