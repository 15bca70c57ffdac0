// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: the entries that make gradients of log gates from what
// flows past them, and add them up.
#pragma once

// The last sequence whose groups begin at or before number `group`.
static inline int64_t sequence_of_group(const int32_t* cum_seqlens, int64_t sequences, int64_t group, int64_t length) {
  constexpr int GROUP = CHUNK * KEPT;
  if (!cum_seqlens) return group / ((length + GROUP - 1) / GROUP);
  int64_t low = 0, high = sequences;  // the one looked for is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (cum_seqlens[middle] / GROUP + middle <= group) low = middle;
    else high = middle;
  }
  return low;
}

// A warp has a group of chunks of a head, from its last token on; a lane a token of each chunk.
KERNEL(128, 1) gate_gradients(${parameters('gate_gradients')}) {
  static_assert(CHUNK == WARP);
  const int64_t number = block_x() * 4 + warp(), group = number / heads, head = number % heads;
  if (group >= groups) return;
  const int64_t length = q_view.shape[1], sequence = sequence_of_group(cum_seqlens, sequences, group, length);
  float total = 0;
  if (sequence < sequences) {
    const Tokens tokens(cum_seqlens, sequences, sequence, length);
    const int64_t first = group - groups_before(cum_seqlens, tokens, sequence, length);
    const int count = static_cast<int>(tokens.end - tokens.first), parts = static_cast<int>((q_view.shape[3] + 15) / 16);
    const int chunks = (count + CHUNK - 1) / CHUNK, begin = static_cast<int>(first) * KEPT;
    const int end = chunks < begin + KEPT ? chunks : begin + KEPT;
    const TokenNumbers gates(g_view, g_type, tokens, head, reverse);
    const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
    const GradientRow to(dg_view, g_type, tokens.row, reverse ? tokens.end - 1 : tokens.first, head);
    float past = 0;  // what flows past the gates behind the tokens
    for (int part = 0; begin < end && part < parts; ++part) past += through_sums[number * SLICES + part];
    for (int chunk = end - 1; chunk >= begin; --chunk) {
      const float* from = flow_sums + ((group * KEPT + chunk - begin) * heads + head) * FLOW_PARTS * CHUNK + lane();
      float read = 0, left = 0;
      for (int part = 0; part < parts; ++part) read += from[(1 + part) * CHUNK], left += from[(1 + SLICES + part) * CHUNK];
      float sum = from[0] + (read - left);
#pragma unroll
      for (int by = 1; by < WARP; by *= 2) {
        const float later = shuffle_down(sum, by);
        if (lane() + by < WARP) sum += later;
      }
      const int t = chunk * CHUNK + lane();
      if (t < count) {
        const float gate = (gates.data ? number_at(gates.data, gates.type, static_cast<int64_t>(t) * gates.stride) : 0) + gamma;
        const float gradient = gate < -3.4e38f ? 0 : past + sum;
        if (is_given(dg_view)) to.store(t * (reverse ? -dg_view.strides[1] : dg_view.strides[1]), gradient);
        total += gradient;
      }
      past += shuffle(sum, 0);
    }
  }
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) total += shuffle_xor(total, mask);
  if (lane() == 0) gate_sums[number] = total;
}
