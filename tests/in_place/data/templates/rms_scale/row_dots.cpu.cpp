// A row a work item.
#include "device/cpu.h"

static void row(${parameters('row')}, const Group& group) {
  float sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += a[group.x * a4 + c] * b[group.x * a5 + c];
  out[group.x] = sum;
}
