// A row a work item.
#include "device/cpu.h"

static void scale(${parameters('scale')}, const Group& group) {
  float sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += x[group.x * a4 + c] * x[group.x * a4 + c];
  const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(C) + epsilon);
  for (int64_t c = 0; c < C; ++c) out[group.x * a5 + c] = factor * x[group.x * a4 + c];
  if (factors) factors[group.x] = factor;
}
