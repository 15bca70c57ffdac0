// A row by as many blocks as the grid has for it.
#include "device/gpu.h"

KERNEL(32, 1) copy_rows(${parameters('copy_rows')}) {
  for (int64_t i = block_x() * 32 + thread_x(); i < C; i += 32 * grid_x()) out[block_y() * C + i] = x[block_y() * C + i];
}
