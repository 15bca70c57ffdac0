// A row a work item.
#include "device/cpu.h"

static void row(${parameters('row')}, const Group& group) {
  for (int64_t c = 0; c < C; ++c) out[group.x * a5 + c] = factors[group.x] * x[group.x * a4 + c];
}
