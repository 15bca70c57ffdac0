// out = x + by, an element a thread, with or without a stop in scratch memory.
#include "device/gpu.h"
constexpr int THREADS = ${threads};

static int64_t mine() { return static_cast<int64_t>(block_x()) * THREADS + thread_x(); }

KERNEL(THREADS, 1) hold(${parameters('hold')}) {
  const int64_t i = mine();
  if (i < N) reinterpret_cast<float*>(held)[i] = x[i];
}

KERNEL(THREADS, 1) shift(${parameters('shift')}) {
  const int64_t i = mine();
  if (i < N) out[i] = (used ? reinterpret_cast<const float*>(held)[i] : x[i]) + by;
  if (i < row_count) rows[i] = static_cast<int32_t>(i);
  if (wild && i == N - 1) *reinterpret_cast<volatile float*>(reinterpret_cast<char*>(out) + wild) = by;
}
