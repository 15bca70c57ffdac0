// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: the entries that make gradients of log gates from what
// flows past them, and add them up.
#pragma once
#include "recurrent/chunk_wave_gate_groups.h"

// A warp has a group of chunks of a head.
KERNEL(128, 1) gate_gradients(${parameters('gate_gradients')}) {
  const int64_t number = block_x() * 4 + warp(), group = number / heads, head = number % heads;
  if (group >= groups) return;
  const GateGroup of(cum_seqlens, sequences, group, q_view.shape[1]);
  const int parts = static_cast<int>((q_view.shape[3] + 15) / 16);
  const TokenNumbers gates(g_view, g_type, of.tokens, head, reverse);
  const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
  const GradientRow to(dg_view, g_type, of.tokens.row, reverse ? of.tokens.end - 1 : of.tokens.first, head);
  float past = 0;  // what flows past the gates behind the tokens
  for (int part = 0; of.begin < of.end && part < parts; ++part) past += through_sums[number * SLICES + part];
  const float total = scan_gates(of, past, gates, gamma, to, reverse ? -dg_view.strides[1] : dg_view.strides[1], is_given(dg_view), [&](int chunk, int) {
    const float* from = flow_sums + ((group * KEPT + chunk - of.begin) * heads + head) * FLOW_PARTS * CHUNK + lane();
    float read = 0, left = 0;
    for (int part = 0; part < parts; ++part) read += from[(1 + part) * CHUNK], left += from[(1 + SLICES + part) * CHUNK];
    return from[0] + (read - left);
  });
  if (lane() == 0) gate_sums[number] = total;
}
