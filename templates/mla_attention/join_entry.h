// A launch of mla_attention and of its gradient: queries of both parts in one row, and rope features behind the keys that `expand` makes. A part of a template, which has
// defined: Element, D, NOPE, ROPE, JOIN_THREADS.
#pragma once

// Chunks of 8 features of this turn's heads: queries of both parts into one row, and rope features of the keys behind what `expand` makes.
KERNEL(JOIN_THREADS, 1) join(${parameters('join')}) {
  const int64_t first_head = step * head_slots, heads = all_heads - first_head < head_slots ? all_heads - first_head : head_slots;
  const int64_t query_chunks = sequence_count * query_tokens * heads * (D / 8), key_chunks = sequence_count * key_tokens * heads * (ROPE / 8);
  const int64_t all_threads = int64_t{grid_x()} * JOIN_THREADS;
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * JOIN_THREADS + thread_x(); i < query_chunks; i += all_threads) {
    const int d = static_cast<int>(i % (D / 8)) * 8;
    const int64_t row = i / (D / 8), head = row % heads, token = row / heads % query_tokens, batch = row / heads / query_tokens;
    const View& from = d < NOPE ? q_nope_view : q_rope_view;
    const Element* const at = static_cast<const Element*>(from.data) + batch * from.strides[0] + token * from.strides[1] + (first_head + head) * from.strides[2];
    store_pack(reinterpret_cast<Element*>(joined_q) + ((batch * query_tokens + token) * head_slots + head) * D + d, load_pack<8>(at + (d < NOPE ? d : d - NOPE)));
  }
  constexpr int CHUNKS = ROPE > 0 ? ROPE / 8 : 1;  // of a key; of none there is nothing to do
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * JOIN_THREADS + thread_x(); i < key_chunks; i += all_threads) {
    const int d = static_cast<int>(i % CHUNKS) * 8;
    const int64_t row = i / CHUNKS, head = row % heads, token = row / heads % key_tokens, batch = row / heads / key_tokens;
    store_pack(reinterpret_cast<Element*>(made_k) + ((batch * key_tokens + token) * head_slots + head) * D + NOPE + d,
               load_pack<8>(k_rope + batch * rope_outer + token * rope_inner + d));
  }
}
