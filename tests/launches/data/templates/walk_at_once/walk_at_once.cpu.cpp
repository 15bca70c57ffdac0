// All steps in one launch: a work item has `part` elements, and meets the others after each step.
#include "device/tile/grid_barrier.h"

static void walk(${parameters('walk')}, const Group& group) {
  const int64_t first = (group.y * group.grid_x + group.x) * part, last = first + part < N ? first + part : N;
  float* mine = static_cast<float*>(group.shared);
  for (int64_t i = first; i < last; ++i) mine[i - first] = 0;
  for (int64_t t = 0; t < T; ++t) {
    const float* from = states + t % 2 * N;
    float* to = states + (t + 1) % 2 * N;
    for (int64_t i = first; i < last; ++i) to[i] = mine[i - first] = 0.5f * from[i + 1 < N ? i + 1 : 0] + x[t * N + i];
    grid_barrier();
  }
  for (int64_t i = first; i < last; ++i) out[i] = mine[i - first];
}
