// GPU vocabulary of the chunked recurrence's gradient with the delta rule: the entry that makes a chunk's numbers and matrices. Part of a
// template; backward.chunk.gpu.cu has the formulas.
#pragma once
#include "recurrent/chunk_delta_products.h"
$if narrow
#include "recurrent/chunk_delta_units.h"
$end

// Matrices of elements of each chunk and head: the inverse, and the weights of pairs of tokens.
constexpr int MATRICES_KEPT = INVERSE_PARTS + ${narrow ? 'PAIR_PARTS' : 'PARTS'};

// Shared memory of `prepare`: numbers, the matrix of the delta rule; queries and keys, whose place its inverse takes.
constexpr int PREPARED_MATRICES = NUMBERS_BYTES, PREPARED_ROWS = PREPARED_MATRICES + static_cast<int>(sizeof(Matrices)) / 2;
static_assert(PREPARED_ROWS + 2 * KeyTile::BYTES <= ${prepare_shared}, "the spec has another size");
static_assert(PREPARED_MATRICES + static_cast<int>(sizeof(Matrices)) <= ${prepare_shared} && PREPARED_ROWS % 16 == 0, "the spec has another size");

// Products of keys and of queries with keys, of the blocks of the lower triangle. Calls use(t, s, of keys, of queries) for those of tokens t and
// t + 8 with keys s, s + 1, s + 8 and s + 9, as matrix instructions have them.
template <class Use> static inline void multiply_chunk(const KeyTile& queries, const KeyTile& keys, Use use) {
#pragma unroll 1
  for (int block = warp(); block < 10; block += WARPS) {
    const int row = 16 * block_row(block), column = 16 * block_column(block);
    float of_keys[2][4] = {}, of_queries[2][4] = {};
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      keys.load_b(b, column, 16 * k);
      keys.load_a(a, row, 16 * k);
      multiply_two(of_keys[0], of_keys[1], a, b);
      queries.load_a(a, row, 16 * k);
      multiply_two(of_queries[0], of_queries[1], a, b);
    }
    use(row + lane() / 4, column + lane() % 4 * 2, of_keys, of_queries);
  }
}

$if normed
// Factors that make the norms of queries and of keys 1, of tiles one after the other: by all threads, some a row.
static inline void put_both_norms(const char* tiles, Norms& to) {
  constexpr int SHARE = THREADS / (2 * CHUNK);
  static_assert(SHARE >= 1 && SHARE <= WARP);
  const int row = thread_x() / SHARE, part = thread_x() % SHARE;
  const Element* at = reinterpret_cast<const Element*>(tiles + row / CHUNK * KeyTile::BYTES) + row % CHUNK * KeyTile::PITCH;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < KEYS; i += 8 * SHARE) {
    if (KEYS % (8 * SHARE) > 0 && i + 8 * part >= KEYS) break;
    const Pack<Element, 8> x = load_pack<8>(at + i + 8 * part);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += to_float(x.at[j]) * to_float(x.at[j]);
  }
#pragma unroll
  for (int mask = 1; mask < SHARE; mask *= 2) squares += shuffle_xor(squares, mask);
  float* norms = row < CHUNK ? to.q : to.k;  // GCC's sanitizers copy the array that `?:` chooses
  if (part == 0) norms[row % CHUNK] = rsqrt_of(squares + 1e-6f);
}
$end

// Block number: a chunk of a head. Its numbers; as elements the inverse of the delta rule's matrix and the weights of pairs of tokens, and
// (PRECISE) behind each what rounding took from it.
KERNEL(THREADS, 1) prepare(${parameters('prepare')}) {
  const ChunkPlace at(cum_seqlens, sequences, heads, q_view.shape[1]);
  if (at.token >= at.count) return;
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const KeyTile query_tile{shared + PREPARED_ROWS}, key_tile{query_tile.base + KeyTile::BYTES};
  ChunkNumbers& numbers = *reinterpret_cast<ChunkNumbers*>(memory);
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
  put_both_norms(memory + PREPARED_ROWS, numbers.norms);
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
$if narrow
  float largest = 0;
  multiply_chunk(query_tile, key_tile, [&](int first_t, int first_s, const float(&)[2][4], const float(&of_queries)[2][4]) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = first_t + i / 2 * 8, s = first_s + 8 * n + i % 2;
        const float pair = scale * numbers.query_norm(t) * numbers.key_norm(s) * gates.left(t, s) * of_queries[n][i];
        largest = s <= t ? larger_size(largest, pair) : largest;
      }
  });
  const Unit pair_unit = unit_of_block<WARPS>(largest, m);
$end
  multiply_chunk(query_tile, key_tile, [&](int first_t, int first_s, const float(&of_keys)[2][4], const float(&of_queries)[2][4]) {
    float high[2], low[2], at_key[2], at_query[2];  // of tokens t; below of keys
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = first_t + 8 * h;
      high[h] = gates.high[t], low[h] = gates.low[t], at_key[h] = gates.beta[t] * numbers.key_norm(t), at_query[h] = scale * numbers.query_norm(t);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int s = first_s + 8 * n;
      const Pack<float, 2> from_high = load_pack<2>(gates.high + s), from_low = load_pack<2>(gates.low + s);
      const float norms[2] = {numbers.key_norm(s), numbers.key_norm(s + 1)};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int t = first_t + 8 * h;
        float pairs[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float left = norms[i] * exp2_of((high[h] - from_high.at[i]) + (low[h] - from_low.at[i]));
          const float system = at_key[h] * left * of_keys[n][2 * h + i], pair = at_query[h] * left * of_queries[n][2 * h + i];
          m.system[t * PITCH + s + i] = s + i < t ? system : 0;
          pairs[i] = s + i <= t ? pair${narrow ? ' * pair_unit.of' : ''} : 0;
        }
        const uint32_t word = pack_pair<Element>(pairs[0], pairs[1]);
        Element* to_pair = to + INVERSE_PARTS * CHUNK * CHUNK + t * CHUNK + s;
        *reinterpret_cast<uint32_t*>(to_pair) = word;
        if (${narrow ? 'PAIR_PARTS' : 'PARTS'} > 1) *reinterpret_cast<uint32_t*>(to_pair + CHUNK * CHUNK) = rounding_of(pairs[0], pairs[1], word);
$if summed
        const float x = pairs[0] - low_of(word), y = pairs[1] - high_of(word);
        *reinterpret_cast<uint32_t*>(to_pair + 2 * CHUNK * CHUNK) = rounding_of(x, y, pack_pair<Element>(x, y));
$end
      }
    }
  });
  sync_block();
  invert_system<THREADS>(m);
$if narrow
  const float inverse_unit = store_scaled_inverse<THREADS>(m, gates.beta, to);
  if (thread_x() == 0) {
    ChunkNumbers& kept = reinterpret_cast<ChunkNumbers*>(chunk_numbers)[block_x()];
    kept.inverse_unit = inverse_unit, kept.pair_unit = pair_unit.inverse;
  }
$else
  store_inverse_parts<THREADS>(m, to);
$end
}
