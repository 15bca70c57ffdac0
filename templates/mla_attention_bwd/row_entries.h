// Launches of mla_attention_bwd that go through rows: latent rows before the products, gradients of queries and of rope features after them. A part of a template, which
// has defined: Element, D, NOPE, ROPE, ROPE_OR_TWO, LATENT, SPLIT_THREADS.
#pragma once

// kv_latent, in one piece, with 0 for what is not finite: such a token's keys' gradients are NaN where a query sees it, and 0 times it must be 0 elsewhere.
KERNEL(SPLIT_THREADS, 1) copy_finite(${parameters('copy_finite')}) {
  const int64_t chunks = sequence_count * key_tokens * (LATENT / 8);
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < chunks; i += int64_t{grid_x()} * SPLIT_THREADS) {
    const int d = static_cast<int>(i % (LATENT / 8)) * 8;
    const int64_t row = i / (LATENT / 8);
    Pack<Element, 8> x = load_pack<8>(kv_latent + row / key_tokens * latent_outer + row % key_tokens * latent_inner + d);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (to_float(x.at[j]) * 0 != 0) x.at[j] = from_float<Element>(0);
    store_pack(reinterpret_cast<Element*>(finite_latent) + row * LATENT + d, x);
  }
}

// dq to its two parts; dk_rope's sum over the heads.
KERNEL(SPLIT_THREADS, 1) split(${parameters('split')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  const int64_t query_chunks = sequence_count * query_tokens * turn.count * (D / 8), all_threads = int64_t{grid_x()} * SPLIT_THREADS;
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < query_chunks; i += all_threads) {
    const int d = static_cast<int>(i % (D / 8)) * 8;
    const int64_t row = i / (D / 8), slot = row % turn.count, token = row / turn.count % query_tokens, batch = row / turn.count / query_tokens;
    const View& to = d < NOPE ? dq_nope_view : dq_rope_view;
    store_pack(static_cast<Element*>(to.data) + batch * to.strides[0] + token * to.strides[1] + (turn.first + slot) * to.strides[2] + (d < NOPE ? d : d - NOPE),
               load_pack<8>(reinterpret_cast<const Element*>(dq) + ((batch * query_tokens + token) * head_slots + slot) * D + d));
  }
  const int64_t pairs = sequence_count * key_tokens * (ROPE / 2);
  const bool last = turn.first + turn.count == all_heads;
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < pairs; i += all_threads) {
    const int64_t row = i / (ROPE_OR_TWO / 2);
    const int d = static_cast<int>(i % (ROPE_OR_TWO / 2)) * 2;
    Pack<float, 2> sum{};
    if (step > 0) sum = load_pack<2>(rope_sums + 2 * i);
#pragma unroll 8
    for (int64_t slot = 0; slot < turn.count; ++slot) {
      const Pack<Element, 2> x = load_pack<2>(reinterpret_cast<const Element*>(dk) + (row * head_slots + slot) * D + NOPE + d);
      sum.at[0] += to_float(x.at[0]), sum.at[1] += to_float(x.at[1]);
    }
    store_pack(rope_sums + 2 * i, sum);
    Element* const to = static_cast<Element*>(dk_rope_view.data) + row / key_tokens * dk_rope_view.strides[0] + row % key_tokens * dk_rope_view.strides[1] + d;
    if (last) to[0] = from_float<Element>(sum.at[0]), to[1] = from_float<Element>(sum.at[1]);
  }
}
