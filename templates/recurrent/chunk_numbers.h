// GPU vocabulary of the chunked recurrence's gradient: what is needed of a chunk's gates and rows' norms, made once for all that need it.
// Part of backward.chunk.gpu.cu.
#pragma once

struct alignas(16) ChunkNumbers {
  Gates gates;
$if normed
  Norms norms;
  float query_norm(int t) const { return norms.q[t]; }
  float key_norm(int t) const { return norms.k[t]; }
$else
  float query_norm(int) const { return 1; }
  float key_norm(int) const { return 1; }
$end
};
constexpr int NUMBERS_BYTES = static_cast<int>(sizeof(ChunkNumbers));
static_assert(NUMBERS_BYTES == 4 * ${numbers}, "the spec has another size");

// Starts copying a chunk's numbers to shared memory.
template <int COPIERS> static inline void copy_numbers_async(SharedPointer to, const ChunkNumbers* from) {
#pragma unroll 1
  for (int i = thread_x(); i < NUMBERS_BYTES / 16; i += COPIERS) copy_async_16(to + 16 * i, reinterpret_cast<const char*>(from) + 16 * i, true);
}

// Factors that make the norms of a chunk's rows 1, by a block of 128 threads: a warp has every fourth row.
static inline void store_norms(const View& view, const Tokens& tokens, int64_t head, int64_t heads, int token, int count, bool reverse, float* to) {
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
  const uint32_t chunk = static_cast<uint32_t>(block_x()) / static_cast<uint32_t>(heads);
  const uint32_t head = static_cast<uint32_t>(block_x()) - chunk * static_cast<uint32_t>(heads);
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, q_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, q_view.shape[1])) * CHUNK;
  if (token >= count) return;
  ChunkNumbers& to = reinterpret_cast<ChunkNumbers*>(chunk_numbers)[block_x()];
  if (warp() == 0) {
    float numbers[2];
    TokenNumbers(g_view, g_type, tokens, head, reverse)
        .load(token, count, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), numbers);
    put_gates(to.gates, numbers);
  }
$if normed
  store_norms(q_view, tokens, head, heads, token, count, reverse, to.norms.q);
  store_norms(k_view, tokens, head, heads, token, count, reverse, to.norms.k);
$end
}
