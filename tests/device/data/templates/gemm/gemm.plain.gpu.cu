// c = a b, a thread an element.
#include "device/gpu.h"

KERNEL(128, 1) gemm(${parameters('gemm')}) {
  const int64_t i = static_cast<int64_t>(block_x()) * 128 + thread_x();
  if (i >= M * N) return;
  float sum = 0;
  for (int64_t k = 0; k < K; ++k) sum += to_float(a[i / N * K + k]) * to_float(b[k * N + i % N]);
  c[i] = from_float<${ctype(E)}>(sum);
}
