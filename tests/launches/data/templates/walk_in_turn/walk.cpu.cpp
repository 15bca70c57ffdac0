// A step in two launches that repeat in turn, 16 elements a work item.
#include "device/cpu.h"

static void advance(${parameters('advance')}, const Group& group) {
  for (int64_t i = 16 * group.x; i < 16 * group.x + 16 && i < N; ++i) next[i] = 0.5f * now[i + 1 < N ? i + 1 : 0] + x[step * N + i];
}

static void settle(${parameters('settle')}, const Group& group) {
  for (int64_t i = 16 * group.x; i < 16 * group.x + 16 && i < N; ++i) now[i] = next[i];
}

static void finish(${parameters('finish')}, const Group& group) {
  for (int64_t i = 16 * group.x; i < 16 * group.x + 16 && i < N; ++i) out[i] = now[i];
}
