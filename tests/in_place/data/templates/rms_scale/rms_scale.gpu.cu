// A row a thread.
#include "device/gpu.h"

KERNEL(32, 1) scale(${parameters('scale')}) {
  const int64_t row = static_cast<int64_t>(block_x()) * 32 + thread_x();
  if (row >= N) return;
  float sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += x[row * a5 + c] * x[row * a5 + c];
  const float factor = exp2_of(-0.5f * log_of(sum / static_cast<float>(C) + epsilon) * 1.4426950408889634f);
  for (int64_t c = 0; c < C; ++c) out[row * a6 + c] = factor * x[row * a5 + c];
  if (factors) factors[row] = factor;
}
