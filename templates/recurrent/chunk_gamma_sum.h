// GPU vocabulary of the chunked recurrence's gradient: the entry that adds up g_gamma's gradient over all chunks.
#pragma once

// Block x: the gradient of head x's g_gamma, over all chunks.
KERNEL(256, 1) sum_gamma(${parameters('sum_gamma')}) {
  double sum = 0;
  for (int64_t chunk = thread_x(); chunk < chunks; chunk += 256) sum += gate_sums[chunk * heads + block_x()];
  __shared__ double sums[256];
  sums[thread_x()] = sum;
  for (int half = 128; half > 0; half /= 2) {
    sync_block();
    if (thread_x() < half) sums[thread_x()] += sums[thread_x() + half];
  }
  if (thread_x() == 0) GradientRow(dg_gamma_view, gamma_type, 0, 0, 0).store(block_x(), static_cast<float>(sums[0]));
}
