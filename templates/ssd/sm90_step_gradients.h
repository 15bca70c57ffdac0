// Hopper vocabulary of ssd_bwd: the entry that makes gradients of steps of what blocks left of the flows past tokens, and the one that adds
// up heads of a group. Part of templates/ssd/backward.chunk.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_flow_rows.h"

// Two tokens' flows of a chunk, of lane l tokens 2 l and 2 l + 1.
struct TokenFlows {
  double read[2] = {}, left[2] = {};  // of the state, and to it; what is left is without its step
  float steps[2];

  TokenFlows(const FlowRows& flows, const DualNumbers& numbers, int chunk, int length) {
    float log_gates[2];
    numbers.load(chunk * CHUNK, length, log_gates, steps);
    add_rows<8>(flows.row(chunk, 0), READ_ROWS, read);
    add_rows<8>(flows.row(chunk, 0), LEFT_ROWS, left);
  }
  double change() const { return read[0] - steps[0] * left[0] + (read[1] - steps[1] * left[1]); }
};

// Sums of the chunk's steps up to two tokens, and of all.
struct Times {
  double at[2], all;
  explicit Times(const float (&steps)[2]) {
    double sum = static_cast<double>(steps[0]) + steps[1];
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const double earlier = __shfl_up_sync(0xffffffff, sum, by);
      if (lane() >= by) sum += earlier;
    }
    at[0] = sum - steps[1], at[1] = sum;
    all = __shfl_sync(0xffffffff, sum, WARP - 1);
  }
};

// A warp number: a chunk of a head. A's gradient is the sum of flows times the steps between their ends: gradients of logs are differences of
// sums, whose errors grow with the largest flow.
KERNEL(128, 1) step_gradients(${parameters('step_gradients')}) {
  const int64_t item = static_cast<int64_t>(block_x()) * 4 + warp();
  if (item >= chunks * heads) return;
  const int length = static_cast<int>(C_view.shape[1]), chunk_count = (length + CHUNK - 1) / CHUNK;
  const int head = static_cast<int>(item % heads), row = static_cast<int>(item / heads), sequence = row / chunk_count, chunk = row % chunk_count;
  const Stream stream(static_cast<uint32_t>(sequence * heads + head), static_cast<uint32_t>(heads), C_view);
  const DualNumbers numbers = steps_of(dt_view, dt_type, dt_bias_view, bias_type, A_view, a_type, dt_softplus, stream);
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, nullptr, stream, is_given(dfinal_state_view));

  const TokenFlows here(flows, numbers, chunk, length);
  double given[2] = {here.left[0], here.left[1]}, read_here[2] = {}, own[2] = {}, skip[2] = {}, aged[2] = {};
  add_rows<4>(flows.row(chunk, 0), READ_HERE_ROWS, read_here);
  add_rows<1>(flows.row(chunk, 0), GIVEN_HERE_ROW, given);
  add_rows<1>(flows.row(chunk, 0), OWN_ROW, own);
  add_rows<1>(flows.row(chunk, 0), SKIP_ROW, skip);
  add_rows<1>(flows.row(chunk, 0), AGED_ROW, aged);
  double change[2];  // of the log's gradient, from the token after it on
#pragma unroll
  for (int i = 0; i < 2; ++i) change[i] = here.read[i] + read_here[i] - here.steps[i] * given[i];

  // What flows through the chunk and leaves it: the product of the state after it and its gradient; from those of later chunks.
  double after = 0;
  int next = chunk + 1;
  for (; next < chunk_count && next % KEPT_EVERY > 0; ++next) after += TokenFlows(flows, numbers, next, length).change();
  if (kept.meets(next) && lane() < 8) after += kept.products_of(next)[lane()];
  after = sum_of_warp(after);

  double sum = change[0] + change[1];
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const double more = __shfl_down_sync(0xffffffff, sum, by);
    if (lane() + by < WARP) sum += more;
  }
  const Times times(here.steps);
  const double left_to_it = sum_of_warp(here.steps[0] * here.left[0] + here.steps[1] * here.left[1]);
  // Where next to nothing is left of the state before the chunk, the difference would be what rounding left.
  const double through = numbers.rate * LOG2_E * times.all < -24 ? 0 : after - left_to_it;
  const Steps slopes{{dt_view, dt_type, Tokens(nullptr, sequences, sequence, length), head, 0}, numbers.bias, numbers.rate, numbers.softplus};
  const GradientRow to(ddt_view, dt_type, sequence, 0, head);
  double sums[3] = {lane() == 0 ? through * times.all : 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = chunk * CHUNK + 2 * lane() + i;
    if (t >= length) continue;
    const double log = after + sum - (i ? change[0] : 0);
    const float gradient = static_cast<float>(given[i] + own[i] + numbers.rate * log) * slopes.slope(t);
    to.store(t * ddt_view.strides[1], gradient);
    sums[0] += here.read[i] * times.at[i] + here.steps[i] * (here.left[i] * (times.all - times.at[i]) - aged[i] / (numbers.rate * LOG2_E));
    sums[1] += gradient, sums[2] += skip[i];
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const double all = sum_of_warp(sums[i]);
    if (lane() == 0) head_sums[item * 3 + i] = static_cast<float>(all);
  }
}
$if shared_heads

// Adds up a group's heads, eight states of a token a thread.
static inline void add_group(const Element* sums, Element* to, int64_t stride, int readers) {
  float all[8] = {};
#pragma unroll 4
  for (int reader = 0; reader < readers; ++reader) {
    const Pack<Element, 8> x = load_pack<8>(sums + reader * stride);
#pragma unroll
    for (int i = 0; i < 8; ++i) all[i] += to_float(x.at[i]);
  }
  Pack<Element, 8> rounded;
#pragma unroll
  for (int i = 0; i < 8; ++i) rounded.at[i] = from_float<Element>(all[i]);
  store_pack(to, rounded);
}

// Thread number: eight states of a group of a token, of C's gradient and then of Bm's.
KERNEL(128, 1) add_heads(${parameters('add_heads')}) {
  const int64_t groups = C_view.shape[2], states = C_view.shape[3], packs = states / 8, count = C_view.shape[0] * C_view.shape[1] * groups * packs;
  int64_t item = static_cast<int64_t>(block_x()) * 128 + thread_x();
  const bool second = item >= count;
  if (second) item -= count;
  if (item >= count) return;
  const int64_t pack = item % packs, group = item / packs % groups, token = item / packs / groups, readers = heads / groups;
  const View& to = second ? dBm_view : dC_view;
  const Element* from = reinterpret_cast<const Element*>(second ? key_sums : query_sums) + (token * heads + group * readers) * states + 8 * pack;
  Element* place = static_cast<Element*>(to.data) + token / C_view.shape[1] * to.strides[0] + token % C_view.shape[1] * to.strides[1] + group * to.strides[2];
  add_group(from, place + 8 * pack, states, static_cast<int>(readers));
}
$end
