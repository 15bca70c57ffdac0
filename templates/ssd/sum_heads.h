// ssd_bwd's last launch: what chunks add to a head's gradients is added up.
#pragma once

// Block x: the gradients of head x's A, dt_bias and D, over all chunks.
KERNEL(256, 1) sum_heads(${parameters('sum_heads')}) {
  __shared__ double sums[3][256];
  for (int i = 0; i < 3; ++i) {
    double sum = 0;
    for (int64_t chunk = thread_x(); chunk < chunks; chunk += 256) sum += head_sums[(chunk * heads + block_x()) * 3 + i];
    sums[i][thread_x()] = sum;
  }
  for (int half = 128; half > 0; half /= 2) {
    sync_block();
    if (thread_x() >= half) continue;
    for (int i = 0; i < 3; ++i) sums[i][thread_x()] += sums[i][thread_x() + half];
  }
  if (thread_x() != 0) return;
  GradientRow(dA_view, a_type, 0, 0, 0).store(block_x(), static_cast<float>(sums[0][0]));
  if (is_given(ddt_bias_view)) GradientRow(ddt_bias_view, bias_type, 0, 0, 0).store(block_x(), static_cast<float>(sums[1][0]));
  if (is_given(dD_view)) GradientRow(dD_view, d_type, 0, 0, 0).store(block_x(), static_cast<float>(sums[2][0]));
}
