// GPU vocabulary of the chunked recurrence's gradient with the delta rule: the entry that makes a chunk's numbers and matrices. Part of a
// template; backward.chunk.gpu.cu has the formulas.
#pragma once
#include "recurrent/chunk_delta_products.h"

// Matrices of elements of each chunk and head: the inverse, and the weights of pairs of tokens.
constexpr int MATRICES_KEPT = INVERSE_PARTS + PARTS;

// Shared memory of `prepare`: queries, keys, numbers, the matrix of the delta rule and its inverse.
constexpr int PREPARED_NUMBERS = 2 * KeyTile::BYTES, PREPARED_MATRICES = PREPARED_NUMBERS + NUMBERS_BYTES;
static_assert(PREPARED_MATRICES + static_cast<int>(sizeof(Matrices)) <= ${prepare_shared}, "the spec has another size");

// Block number: a chunk of a head. Its numbers; as elements the inverse of the delta rule's matrix and the weights of pairs of tokens, and
// (PRECISE) behind each what rounding took from it.
KERNEL(THREADS, ${whole_pairs ? 3 : 1}) prepare(${parameters('prepare')}) {
  const ChunkPlace at(cum_seqlens, sequences, heads, q_view.shape[1]);
  if (at.token >= at.count) return;
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const KeyTile query_tile{shared}, key_tile{shared + KeyTile::BYTES};
  ChunkNumbers& numbers = *reinterpret_cast<ChunkNumbers*>(memory + PREPARED_NUMBERS);
  Matrices& m = *reinterpret_cast<Matrices*>(memory + PREPARED_MATRICES);
  const int keys = static_cast<int>(q_view.shape[3]);
  ChunkRows<Element, KEYS, THREADS>(q_view, at.tokens, at.head, heads, 0, keys, reverse).copy_async(query_tile, at.token, at.count);
  ChunkRows<Element, KEYS, THREADS>(k_view, at.tokens, at.head, heads, 0, keys, reverse).copy_async(key_tile, at.token, at.count);
  copy_async_commit();
  if (warp() == 0) {
    float log_gates[2], betas[2];
    TokenNumbers(g_view, g_type, at.tokens, at.head, reverse)
        .load(at.token, at.count, gamma_of(g_gamma_view, gamma_type, at.head, heads, layer_idx, num_layers), log_gates);
    TokenNumbers(beta_view, beta_type, at.tokens, at.head, reverse).load(at.token, at.count, 0, betas);
    betas[0] = not_zero(betas[0]), betas[1] = not_zero(betas[1]);
    put_gates(numbers.gates, log_gates);
    put_betas(numbers.gates, betas);
  }
  copy_async_wait<0>();
  sync_block();
$if normed
  put_norms<THREADS>(memory, 0, numbers.norms.q);
  put_norms<THREADS>(memory + KeyTile::BYTES, CHUNK % THREADS, numbers.norms.k);
  sync_block();
$end
  const Gates& gates = numbers.gates;
  const auto each_word = [&](char* to) {
    for (int i = thread_x(); i < NUMBERS_BYTES / 16; i += THREADS)
      store_pack(reinterpret_cast<float*>(to) + 4 * i, load_pack<4>(reinterpret_cast<const float*>(&numbers) + 4 * i));
  };
  each_word(reinterpret_cast<char*>(reinterpret_cast<ChunkNumbers*>(chunk_numbers) + block_x()));
  Element* to = reinterpret_cast<Element*>(matrices) + static_cast<int64_t>(block_x()) * MATRICES_KEPT * CHUNK * CHUNK;
  const float scale = softmax_scale;
  multiply_rows(key_tile, key_tile, [&](int t, int s, float x, float y) {
    const float factor = gates.beta[t] * numbers.key_norm(t);
    m.system[t * PITCH + s] = s < t ? factor * numbers.key_norm(s) * gates.left(t, s) * x : 0;
    m.system[t * PITCH + s + 1] = s + 1 < t ? factor * numbers.key_norm(s + 1) * gates.left(t, s + 1) * y : 0;
  });
  multiply_rows(query_tile, key_tile, [&](int t, int s, float x, float y) {
    const float factor = scale * numbers.query_norm(t);
    x = s <= t ? factor * numbers.key_norm(s) * gates.left(t, s) * x : 0;
    y = s + 1 <= t ? factor * numbers.key_norm(s + 1) * gates.left(t, s + 1) * y : 0;
    const uint32_t word = pack_pair<Element>(x, y);
    Element* pair = to + INVERSE_PARTS * CHUNK * CHUNK + t * CHUNK + s;
    *reinterpret_cast<uint32_t*>(pair) = word;
    if (PARTS > 1) *reinterpret_cast<uint32_t*>(pair + CHUNK * CHUNK) = rounding_of(x, y, word);
  });
  sync_block();
  invert_system<THREADS>(m);
  store_inverse_parts<THREADS>(m, to);
$if whole_pairs
#pragma unroll 1
  for (int i = thread_x(); i < PARTS * CHUNK * CHUNK / 8; i += THREADS)  // above the diagonal, where a warpgroup's products read, too
    if (i % 8 / 2 > i / 8 % CHUNK / 16) store_pack(to + INVERSE_PARTS * CHUNK * CHUNK + i * 8, Pack<Element, 8>{});
$end
}
