// out = x + bias + by, block elements a work item.
#include "device/cpu.h"
constexpr int64_t block = ${block};  // elements a work item

static void shift(${parameters('shift')}, const Group& group) {
  const int64_t first = group.x * block;
  const int64_t last = first + block < N ? first + block : N;
  for (int64_t i = first; i < last; ++i) out[i] = x[i] + (bias ? bias[i * a5] : 0) + by;
}
