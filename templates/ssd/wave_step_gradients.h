// GPU vocabulary of ssd_bwd on matrix instructions of a wave: the entry that makes gradients of steps of what blocks left of the flows past tokens.
#pragma once
#include "recurrent/chunk_wave_gate_groups.h"

static inline double from_lane(double x, int from) {
  const float high = static_cast<float>(x);
  return static_cast<double>(shuffle(high, from)) + shuffle(static_cast<float>(x - high), from);
}
static inline double sum_over_warp(double x) {
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) x += from_lane(x, lane() ^ mask);
  return x;
}
// Sums of a lane and those before it, or (LATER) behind it.
template <bool LATER> static inline double sum_of_lanes(double x) {
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const int from = LATER ? lane() + by : lane() - by;
    const double other = from_lane(x, from >= 0 && from < WARP ? from : lane());
    if (from >= 0 && from < WARP) x += other;
  }
  return x;
}

// The lane's token's flows of a chunk: read of the state before it, and left to that after it, which is without its step; others as PairSums has
// them.
struct TokenFlows {
  double read = 0, left = 0;
  float read_here, aged, given, own, skip;

  TokenFlows(const float* from, int parts) {
    const PairSums& pairs = *reinterpret_cast<const PairSums*>(from);
    read_here = PairSums::of_reader(pairs.read, lane()), aged = PairSums::of_reader(pairs.aged, lane());
    given = PairSums::of_writer(pairs.given, lane()), own = pairs.own[lane()], skip = pairs.skip[lane()];
    from += PAIR_ROWS * CHUNK + lane();
    for (int part = 0; part < parts; ++part) read += from[part * CHUNK], left += from[(SLICES + part) * CHUNK];
  }
};

// A warp has a group of chunks of a head, from the last on, and a lane a token of each. A's gradient is the sum of flows times the steps between
// their ends: gradients of logs are differences of sums, whose errors grow with the largest flow.
KERNEL(128, 1) step_gradients(${parameters('step_gradients')}) {
  static_assert(CHUNK == WARP);
  const int64_t number = block_x() * 4 + warp(), group = number / heads, head = number % heads;
  if (group >= groups) return;
  const GateGroup of(cum_seqlens, sequences, group, C_view.shape[1]);
  const int parts = static_cast<int>((C_view.shape[3] + 15) / 16);
  const Steps steps{{dt_view, dt_type, of.tokens, head, 0}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus};
  const GradientRow to(ddt_view, dt_type, of.tokens.row, of.tokens.first, head);
  double past = 0, sums[3] = {};  // what flows past the end of a chunk; of A, dt_bias and D
  for (int part = 0; of.begin < of.end && part < parts; ++part) past += through_sums[number * SLICES + part];
  for (int chunk = of.end - 1; chunk >= of.begin; --chunk) {
    const int t = chunk * CHUNK + lane();
    const TokenFlows flows(flow_sums + ((group * KEPT + chunk - of.begin) * heads + head) * FLOW_PARTS * CHUNK, parts);
    const double step = t < of.count ? steps.at(t) : 0, left = step * flows.left;
    const double log = past + sum_of_lanes<true>(flows.read + flows.read_here - left - step * flows.given);
    const double time = sum_of_lanes<false>(step), all = from_lane(time, WARP - 1), through = past - sum_over_warp(left);
    // Where next to nothing is left of the state before the chunk, the difference would be what rounding left.
    if (lane() == 0 && steps.rate * LOG2_E * all >= -24) sums[0] += through * all;
    if (t < of.count) {
      const float gradient = static_cast<float>(flows.left + flows.given + flows.own + steps.rate * log) * steps.slope(t);
      to.store(t * ddt_view.strides[1], gradient);
      sums[0] += flows.read * time + left * (all - time) + flows.aged, sums[1] += gradient, sums[2] += flows.skip;
    }
    past = from_lane(log, 0);
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const double all = sum_over_warp(sums[i]);
    if (lane() == 0) head_sums[number * 3 + i] = static_cast<float>(all);
  }
}
