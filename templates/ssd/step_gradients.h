// GPU vocabulary of ssd_bwd, 64 tokens at a time: gradients of steps from what flows past a chunk's tokens, and rows of x's gradient. Part of
// templates/recurrent/backward.chunk.gpu.cu, which has defined Flows, HALVES and WARPS before.
#pragma once

// Rows of x's gradient of one head.
struct DualRows {
  Element* first;
  int64_t stride;
  DualRows(const View& view, const Tokens& tokens, int64_t head)
      : first(static_cast<Element*>(view.data) + tokens.row * view.strides[0] + tokens.first * view.strides[1] + head * view.strides[2]),
        stride(view.strides[1]) {}
  void store_two(int64_t token, int64_t feature, float x, float y) const {
    *reinterpret_cast<uint32_t*>(first + token * stride + feature) = pack_pair<Element>(x, y);
  }
};

static inline float sum_over_warp(float x) {
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// By a warp: sums of the chunk's steps, from its first token to each.
static inline void put_times(const Gates& gates, Flows& flows) {
  const LongSum first = {gates.beta[2 * lane()], 0}, second = {gates.beta[2 * lane() + 1], 0};
  LongSum sum = first + second;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const LongSum earlier = from_lane(sum, lane() - by < 0 ? 0 : lane() - by);
    if (lane() >= by) sum = sum + earlier;
  }
  const LongSum before = from_lane(sum, lane() > 0 ? lane() - 1 : 0);
  flows.time[2 * lane()] = lane() > 0 ? before + first : first, flows.time[2 * lane() + 1] = sum;
}

// By the first warp: gradients of dt, and in `added` what the chunk adds to those of A, dt_bias and D. A step is a factor of what its token
// writes, and times the rate the log of what it leaves of the state. Flows of what tokens write are without their steps. A's gradient is the
// sum of flows times the steps between their ends: gradients of logs are differences of sums, whose errors grow with the largest flow.
static inline void store_step_gradients(const Flows& flows, const Gates& gates, const Steps& steps, const GradientRow& to, int64_t stride,
                                        int token, int count, float* added) {
  float change[2], written[2], left = 0;  // of the log, from the token after it on; of the step as a factor
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane() + i;
    float own = 0;
    change[i] = 0;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) change[i] += flows.read[half][t], own += flows.left[half][t];
    left += gates.beta[t] * own;
#pragma unroll
    for (int r = 0; r < 4; ++r) own += flows.read_here[r][t];
    change[i] -= gates.beta[t] * own;
    written[i] = own + flows.own[t];
  }
  float aged = 0;
  if (lane() < WARPS) {
    left += flows.through[lane()];
    aged = flows.aged[lane()] + flows.through[lane()] * flows.time[CHUNK - 1].high;
  }
  left = sum_over_warp(left);
  float sum = change[0] + change[1];
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const float later = shuffle_down(sum, by);
    if (lane() + by < WARP) sum += later;
  }
  float sums[3] = {aged};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane() + i;
    if (token + t >= count) continue;
    const float log = left + sum - (i ? change[0] : 0), gradient = (written[i] + steps.rate * log) * steps.slope(token + t);
    to.store((token + t) * stride, gradient);
    sums[1] += gradient, sums[2] += flows.skip[t];
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const float all = sum_over_warp(sums[i]);
    if (lane() == 0) added[i] = all;
  }
}
