// A row a work item.
#include "device/cpu.h"

static void row(${parameters('row')}, const Group& group) {
  const float factor = factors[group.x];
  const float by = -factor * factor * factor * dots[group.x] / static_cast<float>(C);
  for (int64_t c = 0; c < C; ++c) out[group.x * a6 + c] = by * x[group.x * a5 + c];
}
