// All steps in one launch: a block has `part` elements, and meets the others after each step.
#include "device/tile/grid_barrier.h"

KERNEL(64, 1) walk(${parameters('walk')}) {
  __shared__ float last_of_all;  // as every block has it for itself
  const int64_t first = (static_cast<int64_t>(block_y()) * grid_x() + block_x()) * part, last = first + part < N ? first + part : N;
  float* mine = reinterpret_cast<float*>(dynamic_shared());
  for (int64_t i = first + thread_x(); i < last; i += 64) mine[i - first] = 0;
  for (int64_t t = 0; t < T; ++t) {
    const float* from = states + t % 2 * N;
    float* to = states + (t + 1) % 2 * N;
    for (int64_t i = first + thread_x(); i < last; i += 64) {
      to[i] = mine[i - first] = 0.5f * from[i + 1 < N ? i + 1 : 0] + x[t * N + i];
      if (i == last - 1) last_of_all = mine[i - first];
    }
    grid_barrier();
  }
  for (int64_t i = first + thread_x(); i < last; i += 64) out[i] = held[i] = T > 0 && i == last - 1 ? last_of_all : mine[i - first];
}
