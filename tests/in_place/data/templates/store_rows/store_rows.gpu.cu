// A row of the pages a block.
#include "device/gpu.h"

KERNEL(32, 1) store(${parameters('store')}) {
  const int64_t row = block_x();
  for (int64_t i = thread_x(); row < N && i < D; i += 32) pages[(start + row) * a6 + i] = rows[row * a5 + i];
}
