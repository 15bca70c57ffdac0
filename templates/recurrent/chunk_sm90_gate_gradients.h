// Hopper vocabulary of the chunked recurrence's gradient: the entry that makes gradients of log gates of what blocks left of the flows past
// them. Part of backward.chunk.sm90.cu.
//
// What flows past a gate is a sum over all tokens from it on, of which those after a gate that closes cancel but for their rounding: sums begin
// again there.
#pragma once

#include "recurrent/chunk_sm90_flow_rows.h"

// A log below which a gate leaves less than f32 tells from nothing.
static inline bool closes(float log_gate) { return log_gate < -28; }

// past[i]: what is left of flows past the gates of tokens 2 lane() and the next, without those past the first gate from there on that closes. Numbers
// include what flows past that one.
static inline void leave_out_closed(const float (&log_gates)[2], double (&past)[2]) {
  const bool first = closes(log_gates[0]), second = closes(log_gates[1]);
  const uint32_t lanes = __ballot_sync(0xffffffff, first || second), later = lanes & (0xfffffffe << lane());
  const double own = first ? past[0] : past[1], of_later = __shfl_sync(0xffffffff, own, later ? __ffs(later) - 1 : 0);
  const double closed = later ? of_later : 0;
  past[0] -= first || second ? own : closed;
  past[1] -= second ? past[1] : closed;
}

// A warp number: a chunk of a head.
KERNEL(128, 1) gate_gradients(${parameters('gate_gradients')}) {
  const int64_t item = static_cast<int64_t>(block_x()) * 4 + warp();
  if (item >= chunks * heads) return;
$if packed
  const int head = static_cast<int>(item % heads), row = static_cast<int>(item / heads);
  const PackedChunk own_chunk(cum_seqlens, sequences, row, q_view.shape[1]);
  const int sequence = own_chunk.sequence;
  const Stream stream(static_cast<uint32_t>(sequence * heads + head), static_cast<uint32_t>(heads), own_chunk.of);
  const int length = stream.count, chunk_count = stream.chunks, chunk = own_chunk.number;
  if (chunk >= chunk_count) {
    if (lane() == 0) gate_sums[item] = 0;
    return;
  }
$else
  const int length = static_cast<int>(q_view.shape[1]), chunk_count = (length + CHUNK - 1) / CHUNK;
  const int head = static_cast<int>(item % heads), row = static_cast<int>(item / heads), sequence = row / chunk_count, chunk = row % chunk_count;
  const Stream stream(static_cast<uint32_t>(sequence * heads + head), static_cast<uint32_t>(heads), q_view);
$end
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, nullptr, stream, is_given(dfinal_state_view));

  double change[2] = {}, given[2] = {}, left[2] = {};
  const float* own = flows.row(chunk, 0);
  add_rows<8>(own, READ_ROWS, change);
  add_rows<4>(own, READ_HERE_ROWS, change);
  add_rows<8>(own, LEFT_ROWS, left);
  given[0] = left[0], given[1] = left[1];
  add_rows<1>(own, GIVEN_HERE_ROW, given);
  change[0] -= given[0], change[1] -= given[1];

  const Tokens tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, sequence, length);
  const TokenNumbers gates(g_view, g_type, tokens, head, ${packed ? 'REVERSED' : 'false'});
  const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
  // What flows through the chunk and leaves it: the product of the state after it and its gradient; from those of later chunks, up to one with a gate
  // that closes.
  double later[2] = {};
  bool closed = false;
  int next = chunk + 1;
  for (; !closed && next < chunk_count && next % KEPT_EVERY > 0; ++next) {
    double read[2] = {}, given_on[2] = {};
    float log_gates[2];
    gates.load(next * CHUNK, length, gamma, log_gates);
    add_rows<8>(flows.row(next, 0), READ_ROWS, read);
    add_rows<8>(flows.row(next, 0), LEFT_ROWS, given_on);
    closed = any_in_warp(closes(log_gates[0]) || closes(log_gates[1]));
#pragma unroll
    for (int i = 0; i < 2; ++i) later[i] += closed ? read[i] : read[i] - given_on[i];
  }
  double after = later[0] + later[1];
  if (!closed && kept.meets(next) && lane() < 8) after += kept.products_of(next)[lane()];
  after = sum_of_warp(after);

  double sum = change[0] + change[1];
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const double more = __shfl_down_sync(0xffffffff, sum, by);
    if (lane() + by < WARP) sum += more;
  }
  const int token = chunk * CHUNK;
  float log_gates[2];
  gates.load(token, length, gamma, log_gates);
  double past[2] = {after + sum, after + sum - change[0]};
  leave_out_closed(log_gates, past);
  const GradientRow to(dg_view, g_type, tokens.row, ${packed ? 'REVERSED ? tokens.end - 1 : tokens.first' : '0'}, head);
  double total = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = token + 2 * lane() + i;
    const bool none = t >= length || log_gates[i] < -3.4e38f;
    const double gradient = none ? 0 : past[i];
    if (is_given(dg_view) && t < length) to.store(${packed ? '(REVERSED ? -t : t)' : 't'} * dg_view.strides[1], static_cast<float>(gradient));
    total += gradient;
  }
  total = sum_of_warp(total);
  if (lane() == 0) gate_sums[item] = static_cast<float>(total);
}
