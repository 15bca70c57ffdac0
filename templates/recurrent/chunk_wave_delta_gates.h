// GPU vocabulary of the chunked recurrence's gradients with the delta rule on matrix instructions of a wave: the entries that make gradients of
// log gates from what flows past them, and add them up. Part of backward.chunk_delta_wave.gpu.cu, which says what flows.
#pragma once
#include "recurrent/chunk_wave_gate_groups.h"

// A block has a group of chunks of a head: all threads multiply the state behind it with its gradient, the first warp goes from the last token on.
KERNEL(128, 1) gate_gradients(${parameters('gate_gradients')}) {
  const int64_t number = block_x(), group = number / heads, head = number % heads, length = q_view.shape[1];
  const GateGroup of(cum_seqlens, sequences, group, length);
  const int parts = static_cast<int>((v_view.shape[3] + 15) / 16);
  __shared__ float sums[4];
  float past = 0;  // what flows past the gates behind the tokens
  if (of.begin < of.end) {
    const float* state = kept_states + number * 2 * SLICES * (16 * KEYS);
    for (int i = thread_x(); i < parts * 16 * KEYS; i += 128) past += state[i] * state[SLICES * 16 * KEYS + i];
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) past += shuffle_xor(past, mask);
  }
  if (lane() == 0) sums[warp()] = past;
  sync_block();
  if (warp() != 0) return;
  past = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  const Tokens& tokens = of.tokens;
  const TokenNumbers gates(g_view, g_type, tokens, head, reverse);
  const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
  const GradientRow to(dg_view, g_type, tokens.row, reverse ? tokens.end - 1 : tokens.first, head);
  const float total = scan_gates(of, past, gates, gamma, to, reverse ? -dg_view.strides[1] : dg_view.strides[1], is_given(dg_view), [&](int chunk, int t) {
    const float* from = flow_sums + ((group * KEPT + chunk - of.begin) * heads + head) * SLICES * CHUNK + lane();
    const int64_t token = tokens.row * length + (reverse ? tokens.end - 1 - t : tokens.first + t);
    float sum = 0;
    for (int part = 0; part < parts; ++part) sum += from[part * CHUNK];
    return t < of.count ? sum - token_flows[token * heads + head] : 0;
  });
  if (lane() == 0) gate_sums[number] = total;
}
