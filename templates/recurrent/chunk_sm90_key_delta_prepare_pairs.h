// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: the entry that makes a chunk's pairs and its inverse, and what queries
// and keys are weighed by. After chunk_sm90_key_delta_prepare.h.
#pragma once
#include "recurrent/chunk_sm90_key_delta_prepare.h"

// Of a key: the sums of gates before each part, then of those after each.
static inline void store_part_logs(const PrepareMemory& memory, int key, float* to) {
  float before = 0, after = 0;
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    to[part * KEYS] = before, to[(2 * PARTS - 1 - part) * KEYS] = after;
    before += memory.logs[part][key], after += memory.logs[PARTS - 1 - part][key];
  }
}

// A chunk of a head.
struct PreparedChunk {
  int chunk, head, token, count;
  Tokens tokens;
  PreparedChunk(int number, int heads, int64_t sequences, int64_t length)
      : chunk(number / heads), head(number - chunk * heads), count(static_cast<int>(length)), tokens(nullptr, sequences, sequence_of(chunk, length), length) {
    token = static_cast<int>(chunk - tokens.row * ((length + CHUNK - 1) / CHUNK)) * CHUNK;
  }
  static uint32_t sequence_of(uint32_t chunk, int64_t length) { return chunk / ((static_cast<uint32_t>(length) + CHUNK - 1) / CHUNK); }
};

#include "recurrent/chunk_sm90_delta_inverse.h"

// The pairs' weights, by the threads from `first` on.
static inline void store_pairs(const PrepareMemory& memory, Piece* to, int first) {
  static_assert(PAIR_PIECES == 1);
#pragma unroll 1
  for (int i = thread_x() - first; i < CHUNK * CHUNK / 8 && i >= 0; i += PREPARE_THREADS - first) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<Piece, 8> words;
#pragma unroll
    for (int j = 0; j < 8; ++j) words.at[j] = from_float<Piece>(column + j <= row ? memory.pairs[row * PAIR_PITCH + column + j] : 0);
    store_pack(to + i * 8, words);
  }
}

// Block number: a chunk of a head.
KERNEL(PREPARE_THREADS, 2) prepare(${parameters('prepare')}) {
  constexpr int INVERTERS = 2;  // warps that begin the inverse
  const int number = block_x();
  const PreparedChunk at(number, static_cast<int>(heads), sequences, k_view.shape[1]);
  PrepareMemory& memory = *reinterpret_cast<PrepareMemory*>(dynamic_shared());
  Matrices& m = memory.m;
  float* numbers = decays + number * int64_t{DECAY_ROW};
  OwnRows own;
  own.set(uniform(warp()));
  if (thread_x() == 0) memory.steep = 0;
  const TokenNumbers token_gates(g_view, g_type, at.tokens, at.head, false), betas(beta_view, beta_type, at.tokens, at.head, false);
  uint32_t raw[2][2] = {};
  if (warp() == 0) token_gates.load_raw(at.token, at.count, raw[0]), betas.load_raw(at.token, at.count, raw[1]);
  own.load_gates(gk_view, gk_type, at.tokens, at.head, at.token, at.count);
  own.load(own.keys, k_view, at.tokens, at.head, heads, at.token, at.count);
  own.load(own.queries, q_view, at.tokens, at.head, heads, at.token, at.count);
  if (warp() == 0) {
    float x[2];
    token_gates.read(raw[0], at.token, at.count, gamma_of(g_gamma_view, gamma_type, at.head, heads, layer_idx, num_layers), x);
    memory.token_gates[2 * lane()] = x[0], memory.token_gates[2 * lane() + 1] = x[1];
    betas.read(raw[1], at.token, at.count, 0, x);
    x[0] = not_zero(x[0]), x[1] = not_zero(x[1]);
    store_pack(numbers + KEYS + 2 * lane(), Pack<float, 2>{x[0], x[1]});
    memory.betas[2 * lane()] = x[0], memory.betas[2 * lane() + 1] = x[1];
  }
  sync_block();
  if (keeps_gates) {
    const int64_t row = at.tokens.row * ((at.count + CHUNK - 1) / CHUNK * CHUNK) + at.token;
    own.store_gates(gates + (row * heads + at.head) * KEYS, heads * KEYS, memory.token_gates);
  }
  make_pairs(memory, own, softmax_scale, numbers, [&](int key) { store_part_logs(memory, key, numbers + PART_LOGS + key); });
  sync_block();
  if (warp() < INVERTERS) {
    invert_diagonal<INVERTERS>(m);
    sync_some(1, INVERTERS * WARP);
    invert_below<1>(m, 2 * warp(), 0);
  } else {
    store_pairs(memory, reinterpret_cast<Piece*>(weights) + int64_t{number} * CHUNK * CHUNK, INVERTERS * WARP);
  }
  sync_block();
  invert_below_by_all<2, PREPARE_WARPS>(m);
  sync_block();
  // For what tokens write to keys of length 1.
  store_inverse_pieces<PREPARE_THREADS>(m, 1, reinterpret_cast<int*>(memory.row_sums), reinterpret_cast<Piece*>(inverses) + int64_t{number} * INVERSE_PARTS * CHUNK * CHUNK,
                                        numbers + INVERSE_POWER, [&](int row) { return memory.key_norms[row] * reciprocal(memory.key_factors[row]); });
}
