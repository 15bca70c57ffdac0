// The SIMT emulator: a backend that runs portable GPU templates as C++, one fiber a GPU thread, and reports deadlocks, divergence and
// misalignment that a GPU would not. Devices of its own: Device{extension, 0} is NVIDIA's warp of 32, 1 to 3 are AMD's CDNA (waves of 64),
// RDNA 3 and RDNA 4. Register it with add_backend(simt_backend()) before the library's first use.
#pragma once
#include "backends/backend.h"

namespace ejk {

Backend& simt_backend();

// In which order threads run between two points where they meet, and blocks one after the other. A kernel without races gives the same
// bits in both.
enum class SimtOrder { forwards, backwards };
void simt_set_order(SimtOrder order);  // of all launches from now on; at first forwards
SimtOrder simt_order();

}  // namespace ejk
