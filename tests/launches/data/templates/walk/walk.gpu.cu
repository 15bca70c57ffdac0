// One step a launch, an element a thread.
#include "device/gpu.h"

static int64_t mine() { return static_cast<int64_t>(block_x()) * 64 + thread_x(); }

KERNEL(64, 1) advance(${parameters('advance')}) {
  const float* from = step % 2 ? odd : even;
  float* to = step % 2 ? even : odd;
  const int64_t i = mine();
  if (i < N) to[i] = 0.5f * from[i + 1 < N ? i + 1 : 0] + x[step * N + i];
}

KERNEL(64, 1) finish(${parameters('finish')}) {
  const int64_t i = mine();
  if (i < N) out[i] = held[i] = (T % 2 ? odd : even)[i];
}
