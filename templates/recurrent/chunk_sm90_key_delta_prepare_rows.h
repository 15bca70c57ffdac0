// Hopper vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: the entry that makes a chunk's pairs, its inverse and
// weighed rows. After chunk_sm90_key_delta_prepare.h.
#pragma once
#include "recurrent/chunk_sm90_key_delta_prepare.h"
#include "recurrent/chunk_sm90_delta_inverse.h"

// Two numbers of a row in global memory; pieces are a matrix apart.
template <int PIECE_COUNT, class T> static inline void store_pieces(T* to, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < PIECE_COUNT; ++piece) {
    const uint32_t word = pack_pair<T>(x, y);
    *reinterpret_cast<uint32_t*>(to + piece * CHUNK * KEYS) = word;
    x -= low_as<T>(word), y -= high_as<T>(word);
  }
}

// What states are read by and take in: queries and keys times what the gates leave from the chunk's start, keys times what they leave to its end.
static inline void store_weighed(const PrepareMemory& memory, OwnRows& own, float scale, Element* queries, Piece* before, Piece* after) {
  own.forget();
  float left[2] = {}, later[2] = {};
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float log = memory.logs[part][own.key + j];
      if (part < own.part) left[j] += log;
      if (part > own.part) later[j] += log;
    }
  const int at = own.first * KEYS + own.key;
  weigh_later<PART>(own, 0, left, [&](int i, float low, float high) {
    const float query = scale * (NORMED ? memory.query_norms[own.first + i] : 1), key = memory.key_factors[own.first + i];
    store_pieces<QUERY_PIECES>(queries + at + i * KEYS, low_of(own.queries[i]) * query * low, high_of(own.queries[i]) * query * high);
    store_pieces<ROW_PIECES>(before + at + i * KEYS, low_of(own.keys[i]) * key * low, high_of(own.keys[i]) * key * high);
  });
  own.forget();
  weigh_earlier<PART>(own, 0, later, [&](int i, float low, float high) {
    const float key = memory.key_factors[own.first + i];
    store_pieces<ROW_PIECES>(after + at + i * KEYS, low_of(own.keys[i]) * key * low, high_of(own.keys[i]) * key * high);
  });
}

// The system's inverse, by the first warps.
constexpr int INVERTERS = 2, STORERS_AT = (PREPARE_WARPS > 2 * INVERTERS ? 2 : 1) * INVERTERS * WARP;  // and the first thread that stores weights
static inline void invert_by_two(Matrices& m) {
  const auto meet = [] { sync_some(1, 2 * WARP); };
  invert_diagonal<2>(m);
  meet();
  invert_below<1>(m, 2 * warp(), 0);
  meet();
  invert_below<2>(m, 0, warp());
}

// Block number: a chunk of a head.
KERNEL(PREPARE_THREADS, 2) prepare(${parameters('prepare')}) {
  const int number = block_x(), all_heads = static_cast<int>(heads), chunk = number / all_heads, head = number - chunk * all_heads;
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, k_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, k_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, k_view.shape[1])) * CHUNK;
  if (token >= count) return;
  PrepareMemory& memory = *reinterpret_cast<PrepareMemory*>(dynamic_shared());
  OwnRows own;
  own.set(uniform(warp()));
  if (thread_x() == 0) memory.steep = 0;
  const TokenNumbers token_gates(g_view, g_type, tokens, head, reverse), betas(beta_view, beta_type, tokens, head, reverse);
  uint32_t raw[2][2] = {};
  if (warp() == 0) token_gates.load_raw(token, count, raw[0]), betas.load_raw(token, count, raw[1]);
$if packed  // among all tokens, unless they are counted from the sequence's last one on
  Tokens all = tokens;
  if (!REVERSED) all.first = 0;
  const int from = REVERSED ? token : static_cast<int>(tokens.first) + token, end = REVERSED ? count : static_cast<int>(tokens.end);
$end
  own.load_gates(gk_view, gk_type, ${packed ? 'all, head, from, end, REVERSED' : 'tokens, head, token, count'});
  own.load(own.keys, k_view, ${packed ? 'all, head, heads, from, end, REVERSED' : 'tokens, head, heads, token, count'});
  own.load(own.queries, q_view, ${packed ? 'all, head, heads, from, end, REVERSED' : 'tokens, head, heads, token, count'});
  if (warp() == 0) {
    float numbers[2];
    token_gates.read(raw[0], token, count, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), numbers);
    memory.token_gates[2 * lane()] = numbers[0], memory.token_gates[2 * lane() + 1] = numbers[1];
    betas.read(raw[1], token, count, 0, numbers);
    numbers[0] = not_zero(numbers[0]), numbers[1] = not_zero(numbers[1]);
    store_pack(decays + block_x() * int64_t{DECAY_ROW} + KEYS + 2 * lane(), Pack<float, 2>{numbers[0], numbers[1]});
    memory.betas[2 * lane()] = numbers[0], memory.betas[2 * lane() + 1] = numbers[1];
  }
  sync_block();
  const float scale = softmax_scale;
  make_pairs(memory, own, scale, decays + block_x() * int64_t{DECAY_ROW}, [](int) {});
  Matrices& m = memory.m;
  const int64_t matrix = CHUNK * KEYS;
  float* handed = reinterpret_cast<float*>(memory.near) + warp() % INVERTERS * 4 * PART * WARP;
  static_assert(PREPARE_WARPS >= 2 * INVERTERS && sizeof(memory.near) >= INVERTERS * 4 * PART * WARP * sizeof(float));
  sync_block();
  const bool inverts = warp() < INVERTERS;
  const bool hands = warp() < 2 * INVERTERS;  // the next warps store the rows of those that invert, too
  if (inverts) own.put(handed);
  if (hands) sync_some(2, 2 * INVERTERS * WARP);
  if (inverts) {
    invert_by_two(m);
  } else {
    Element* to = reinterpret_cast<Element*>(weights) + static_cast<int64_t>(block_x()) * PAIR_PIECES * CHUNK * CHUNK;
#pragma unroll 1
    for (int i = thread_x() - STORERS_AT; i < CHUNK * CHUNK / 8 && i >= 0; i += PREPARE_THREADS - STORERS_AT) {
      const int row = i / 8, column = i % 8 * 8;
      float x[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = column + j <= row ? memory.pairs[row * PAIR_PITCH + column + j] : 0;
#pragma unroll
      for (int piece = 0; piece < PAIR_PIECES; ++piece) {
        Pack<Element, 8> words;
#pragma unroll
        for (int j = 0; j < 8; ++j) words.at[j] = from_float<Element>(x[j]), x[j] -= to_float(words.at[j]);
        store_pack(to + piece * CHUNK * CHUNK + i * 8, words);
      }
    }
#pragma unroll 1
    for (int turn = 0; turn < (hands ? 2 : 1); ++turn) {
      if (turn > 0) own.set(uniform(warp()) - INVERTERS), own.take(handed);
      store_weighed(memory, own, scale, reinterpret_cast<Element*>(queries_before) + block_x() * QUERY_PIECES * matrix,
                    reinterpret_cast<Piece*>(keys_before) + block_x() * ROW_PIECES * matrix, reinterpret_cast<Piece*>(keys_after) + block_x() * ROW_PIECES * matrix);
    }
  }
  sync_block();
  // Without its diagonal a row has its token's beta as a factor, which is left to those who multiply.
  store_inverse_pieces<PREPARE_THREADS>(m, 0, reinterpret_cast<int*>(memory.row_sums), reinterpret_cast<Piece*>(inverses) + static_cast<int64_t>(block_x()) * INVERSE_PARTS * CHUNK * CHUNK,
                                        decays + block_x() * int64_t{DECAY_ROW} + INVERSE_POWER, [&](int row) { return reciprocal(memory.betas[row]); });
}
