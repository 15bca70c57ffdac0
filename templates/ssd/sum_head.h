// GPU vocabulary of ssd_bwd: gradients of a head's A, dt_bias and D, by a block of 256 threads.
#pragma once

struct HeadGradient {
  const View& to;
  int64_t type;
};

// added: [count, heads, 3], what chunks, or tokens, add to the three. Head block_x().
static inline void sum_head(const float* added, int64_t count, int64_t heads, const HeadGradient (&gradients)[3]) {
  __shared__ double sums[3][256];
  for (int i = 0; i < 3; ++i) {
    double sum = 0;
    for (int64_t item = thread_x(); item < count; item += 256) sum += added[(item * heads + block_x()) * 3 + i];
    sums[i][thread_x()] = sum;
  }
  for (int half = 128; half > 0; half /= 2) {
    sync_block();
    if (thread_x() >= half) continue;
    for (int i = 0; i < 3; ++i) sums[i][thread_x()] += sums[i][thread_x() + half];
  }
  if (thread_x() != 0) return;
  for (int i = 0; i < 3; ++i)
    if (is_given(gradients[i].to)) GradientRow(gradients[i].to, gradients[i].type, 0, 0, 0).store(block_x(), static_cast<float>(sums[i][0]));
}
