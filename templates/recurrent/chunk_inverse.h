// GPU vocabulary of the chunked recurrence: the entry that inverts a chunk's matrix of the delta rule. Part of forward.chunk.gpu.cu.
#pragma once
$if split or narrow
#include "recurrent/chunk_delta_products.h"
$else
#include "recurrent/chunk_matrix.h"
$end
$if narrow
#include "recurrent/chunk_growth.h"
$end

// Shared memory of `invert`: gates, norms, the matrix of the delta rule; keys, whose place its inverse takes.
constexpr int INVERT_NORMS = static_cast<int>(sizeof(Gates)), MATRICES = (INVERT_NORMS + static_cast<int>(sizeof(Norms)) + 15) / 16 * 16;
constexpr int INVERTED_KEYS = MATRICES + static_cast<int>(sizeof(Matrices)) / 2;
static_assert(INVERTED_KEYS + KeyTile::BYTES <= ${invert_shared} && INVERTED_KEYS % 16 == 0, "the spec has another size");
static_assert(MATRICES + static_cast<int>(sizeof(Matrices)) <= ${invert_shared}, "the spec has another size");

// Block number: a chunk of a head.
KERNEL(THREADS, THREADS > 128 ? 1 : 6) invert(${parameters('invert')}) {
  const int64_t chunk = block_x() / heads, head = block_x() % heads;
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, k_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, k_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, k_view.shape[1])) * CHUNK;
  if (token >= count) return;
  char* memory = dynamic_shared();
  const KeyTile keys{shared_pointer(memory) + INVERTED_KEYS};
  Gates& gates = *reinterpret_cast<Gates*>(memory);
  Norms& norms = *reinterpret_cast<Norms*>(memory + INVERT_NORMS);
  Matrices& m = *reinterpret_cast<Matrices*>(memory + MATRICES);
  KeyRows(k_view, tokens, head, heads, 0, static_cast<int>(k_view.shape[3]), reverse).copy_async(keys, token, count);
  copy_async_commit();
  if (warp() == 0) {
    float log_gates[2], betas[2];
    const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
    TokenNumbers(g_view, g_type, tokens, head, reverse).load(token, count, gamma, log_gates);
    TokenNumbers(beta_view, beta_type, tokens, head, reverse).load(token, count, 0, betas);
    put_gates(gates, log_gates);
    put_betas(gates, betas);
  }
  copy_async_wait<0>();
  sync_block();
  if constexpr (NORMED) {
    put_norms<THREADS>(memory + INVERTED_KEYS, 0, norms.k);
    sync_block();
  }
  multiply_rows(keys, keys, [&](int t, int s, float x, float y) {
    const float factor = gates.beta[t] * (NORMED ? norms.k[t] : 1);
    m.system[t * PITCH + s] = s < t ? factor * (NORMED ? norms.k[s] : 1) * gates.left(t, s) * x : 0;
    m.system[t * PITCH + s + 1] = s + 1 < t ? factor * (NORMED ? norms.k[s + 1] : 1) * gates.left(t, s + 1) * y : 0;
  });
  sync_block();
  invert_system<THREADS>(m);
  Element* to = reinterpret_cast<Element*>(inverses) + static_cast<int64_t>(block_x()) * ${split ? 3 : 2} * CHUNK * CHUNK;
$if split
  store_inverse_parts<THREADS>(m, to);
$elif narrow
  const Unit unit = unit_of_growth(m, norms, count - token);
  store_inverse<THREADS>(m, to, [&](int) { return unit.of; });
  sync_block();
  if (thread_x() == 0) unit_in(to) = unit;
$else
  store_inverse<THREADS>(m, to, [](int) { return 1.0f; });
$end
}
