// The PTX emulator: a backend that runs CUDA images without a GPU, as NVRTC's PTX. It poses as the platform cuda, with one device.
#pragma once
#include <string>

#include "backends/backend.h"

namespace ejk {

Backend& ptx_backend();

// Why no NVRTC was found; empty: one was.
std::string ptx_missing_compiler();

// When asynchronous work is done: at once, or as late as may be. A kernel that waits for what it uses computes the same.
// CTAs and warps of each launch run in another order than those of the launch before; to set the pace begins with the first order again.
enum class PtxPace { eager, lazy };
void ptx_set_pace(PtxPace pace);

}  // namespace ejk
