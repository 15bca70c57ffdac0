// One step a launch, 16 elements a work item.
#include "device/cpu.h"

static void advance(${parameters('advance')}, const Group& group) {
  const float* from = step % 2 ? odd : even;
  float* to = step % 2 ? even : odd;
  for (int64_t i = 16 * group.x; i < 16 * group.x + 16 && i < N; ++i) to[i] = 0.5f * from[i + 1 < N ? i + 1 : 0] + x[step * N + i];
}

static void finish(${parameters('finish')}, const Group& group) {
  for (int64_t i = 16 * group.x; i < 16 * group.x + 16 && i < N; ++i) out[i] = held[i] = (T % 2 ? odd : even)[i];
}
