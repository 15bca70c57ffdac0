// GPU vocabulary of the chunked recurrence: the entry that inverts a chunk's matrix of the delta rule. Part of a template, which has defined
// Element, KEYS, KEYS16, WARPS, THREADS, NORMED, and the parts of forward.chunk.gpu.cu before it.
//
// Row t of the system is u_t + sum over s < t of beta_t e^(c_t - c_s) (k_t . k_s) u_s = ...: 1 on the diagonal, 0 above it. Blocks of 16 on the
// diagonal are inverted row by row, the others by (r, c) = -(r, r) sum over c <= l < r of matrix (r, l) inverse (l, c). All in f32; the
// result is two elements a number, the second of which is what rounding took from the first.
#pragma once

// Chunks of all sequences before one: a number that no other sequence's chunks reach.
static inline int64_t chunks_before(const int32_t* cum_seqlens, const Tokens& tokens, int64_t sequence, int64_t length) {
  return cum_seqlens ? tokens.first / CHUNK + sequence : sequence * ((length + CHUNK - 1) / CHUNK);
}
// The last sequence whose chunks begin at or before number `chunk`.
static inline int64_t sequence_of_chunk(const int32_t* cum_seqlens, int64_t sequences, int64_t chunk, int64_t length) {
  if (!cum_seqlens) return chunk / ((length + CHUNK - 1) / CHUNK);
  int64_t low = 0, high = sequences;  // the one looked for is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (cum_seqlens[middle] / CHUNK + middle <= chunk) low = middle;
    else high = middle;
  }
  return low;
}

constexpr int PITCH = CHUNK + 1;
struct Matrices {
  float system[CHUNK * PITCH], inverse[CHUNK * PITCH];
};
constexpr int INVERT_GATES = KeyTile::BYTES, INVERT_NORMS = INVERT_GATES + static_cast<int>(sizeof(Gates));
constexpr int MATRICES = INVERT_NORMS + static_cast<int>(sizeof(Norms));
static_assert(MATRICES + static_cast<int>(sizeof(Matrices)) <= ${invert_shared}, "the spec has another size");

// A half warp inverts a block on the diagonal, a column a lane.
static inline void invert_diagonal(Matrices& m) {
#pragma unroll 1
  for (int block = 2 * warp() + lane() / 16; block < 4; block += 2 * WARPS) {
    const int at = 16 * block * PITCH + 16 * block, column = lane() % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = i == column ? 1 : 0;
#pragma unroll
      for (int l = 0; l < i; ++l) x[i] -= m.system[at + i * PITCH + l] * x[l];
      m.inverse[at + i * PITCH + column] = x[i];
    }
  }
}

// Blocks `distance` below the diagonal. Their sums lie above it for a while.
static inline void invert_below(Matrices& m, int distance) {
  const int blocks = 4 - distance;
#pragma unroll 1
  for (int i = thread_x(); i < blocks * 256; i += THREADS) {
    const int c = 16 * (i / 256), r = c + 16 * distance, row = r + i / 16 % 16, column = c + i % 16;
    float sum = 0;
#pragma unroll 16
    for (int l = c; l < r; ++l) sum += m.system[row * PITCH + l] * m.inverse[l * PITCH + column];
    m.inverse[(row - 16 * distance) * PITCH + column + 16 * distance] = sum;
  }
  sync_block();
#pragma unroll 1
  for (int i = thread_x(); i < blocks * 256; i += THREADS) {
    const int c = 16 * (i / 256), r = c + 16 * distance, row = r + i / 16 % 16, column = c + i % 16;
    float sum = 0;
#pragma unroll
    for (int l = 0; l < 16; ++l) sum += m.inverse[row * PITCH + r + l] * m.inverse[(c + l) * PITCH + column + 16 * distance];
    m.inverse[row * PITCH + column] = -sum;
  }
  sync_block();
}

// Block number: a chunk of a head.
KERNEL(THREADS, 1) invert(${parameters('invert')}) {
  const int64_t chunk = block_x() / heads, head = block_x() % heads;
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, k_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, k_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, k_view.shape[1])) * CHUNK;
  if (token >= count) return;
  char* memory = dynamic_shared();
  const KeyTile keys{shared_pointer(memory)};
  Gates& gates = *reinterpret_cast<Gates*>(memory + INVERT_GATES);
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
    put_norms(memory, 0, norms.k);
    sync_block();
  }
  multiply_rows(keys, keys, [&](int t, int s, float x, float y) {
    const float factor = gates.beta[t] * (NORMED ? norms.k[t] : 1);
    m.system[t * PITCH + s] = s < t ? factor * (NORMED ? norms.k[s] : 1) * gates.left(t, s) * x : 0;
    m.system[t * PITCH + s + 1] = s + 1 < t ? factor * (NORMED ? norms.k[s + 1] : 1) * gates.left(t, s + 1) * y : 0;
  });
  sync_block();
  invert_diagonal(m);
  sync_block();
#pragma unroll 1
  for (int distance = 1; distance < 4; ++distance) invert_below(m, distance);

  Element* to = reinterpret_cast<Element*>(inverses) + block_x() * 2 * CHUNK * CHUNK;
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * CHUNK / 8; i += THREADS) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<Element, 8> all, rest;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = column + j <= row ? m.inverse[row * PITCH + column + j] : 0;
      all.at[j] = from_float<Element>(x), rest.at[j] = from_float<Element>(x - to_float(all.at[j]));
    }
    store_pack(to + i * 8, all);
    store_pack(to + CHUNK * CHUNK + i * 8, rest);
  }
}
