// A step in two launches that repeat in turn, an element a thread.
#include "device/gpu.h"

static int64_t mine() { return static_cast<int64_t>(block_x()) * 64 + thread_x(); }

KERNEL(64, 1) advance(${parameters('advance')}) {
  const int64_t i = mine();
  if (i < N) next[i] = 0.5f * now[i + 1 < N ? i + 1 : 0] + x[step * N + i];
}

KERNEL(64, 1) settle(${parameters('settle')}) {
  const int64_t i = mine();
  if (i < N) now[i] = next[i];
}

KERNEL(64, 1) finish(${parameters('finish')}) {
  const int64_t i = mine();
  if (i < N) out[i] = now[i];
}
