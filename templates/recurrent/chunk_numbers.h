// GPU vocabulary of the chunked recurrence, all chunks at once: the entry that makes a chunk's numbers.
#pragma once

// Factors that make the norms of a chunk's rows 1, by a block of 128 threads: a warp has every fourth row.
static inline void store_norms(const View& view, const Tokens& tokens, int64_t head, int64_t heads, int token, int count, bool reverse,
                               float* to) {
  const Numbers<Element> rows(view, tokens, head, heads, 0);
  const int keys = static_cast<int>(view.shape[3]);
#pragma unroll 1
  for (int t = warp(); t < CHUNK; t += 4) {
    const int64_t place = reverse ? tokens.end - tokens.first - 1 - token - t : token + t;
    float squares = 0;
    for (int i = lane(); token + t < count && i < keys; i += WARP) squares += rows.at(place, i) * rows.at(place, i);
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) squares += shuffle_xor(squares, mask);
    if (lane() == 0) to[t] = rsqrt_of(squares + 1e-6f);
  }
}

// Block number: a chunk of a head.
KERNEL(128, 1) prepare(${parameters('prepare')}) {
$if dual
  const View& q_view = C_view;
$end
  const ChunkPlace at(cum_seqlens, sequences, heads, q_view.shape[1]);
  if (at.token >= at.count) return;
  ChunkNumbers& to = reinterpret_cast<ChunkNumbers*>(chunk_numbers)[block_x()];
  if (warp() == 0) {
    float numbers[2];
$if dual
    float steps[2];  // besides, factors of what is left of a token's write
    DualNumbers{{dt_view, dt_type, at.tokens, at.head, false}, number_of_head(dt_bias_view, bias_type, at.head), number_at(A_view.data, a_type, at.head), dt_softplus}.load(at.token, at.count, numbers, steps);
    put_betas(to.gates, steps);
$else
    TokenNumbers(g_view, g_type, at.tokens, at.head, reverse)
        .load(at.token, at.count, gamma_of(g_gamma_view, gamma_type, at.head, heads, layer_idx, num_layers), numbers);
$end
    put_gates(to.gates, numbers);
$if dual and not backward
    for (int i = 0; i < 2; ++i) to.gates.after[2 * lane() + i] *= steps[i];
$end
  }
$if normed
  store_norms(q_view, at.tokens, at.head, heads, at.token, at.count, reverse, to.norms.q);
  store_norms(k_view, at.tokens, at.head, heads, at.token, at.count, reverse, to.norms.k);
$end
}
