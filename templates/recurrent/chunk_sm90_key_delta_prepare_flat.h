// Hopper vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: pairs of tokens where no levels are needed, in f32. Part of
// chunk_sm90_key_delta_prepare.h, which has defined a chunk's memory and rows before.
#pragma once
#include "recurrent/chunk_sm90_key_delta_flat_tiles.h"

// Where gates leave enough of all keys between the chunk's middle and its ends, no levels are needed: rows are weighed by what they leave from the
// middle on, or its inverse. Half of the keys, WHICH of a thread's two. `left`: the log of what they leave from the middle to the part's start.
template <int WHICH> static inline void put_flat(PrepareMemory& memory, OwnRows& own) {
  own.forget();
  const auto log_of_part = [&](int part) { return memory.logs[part][own.key + WHICH]; };
  float left[2] = {own.part == 0 ? -(log_of_part(0) + log_of_part(1)) : own.part == 1 ? -log_of_part(1) : own.part == 3 ? log_of_part(2) : 0, 0};
  left[1] = left[0];
#pragma unroll
  for (int i = 0; i < PART / 2; ++i) left[1] += own.gates[i][WHICH];
  const auto number_of = [](uint32_t word) { return WHICH ? high_of(word) : low_of(word); };
  const int at = own.part * (PART / 2) * FLAT_TWO_PITCH + own.key, earlier = own.first * FLAT_PITCH + own.key / 2;
#pragma unroll
  for (int i = 0; i < PART / 2; ++i) {
    Pack<float, 2> keys, queries;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = i + PART / 2 * h;
      left[h] += own.gates[t][WHICH];
      const float later = exp2_of(left[h]), k = number_of(own.keys[t]);
      keys.at[h] = k * later, queries.at[h] = number_of(own.queries[t]) * later;
      memory.flat.earlier[earlier + t * FLAT_PITCH] = k * exp2_of(-left[h]);
    }
    store_pack(memory.flat.keys + at + i * FLAT_TWO_PITCH, keys), store_pack(memory.flat.queries + at + i * FLAT_TWO_PITCH, queries);
  }
}

static inline void multiply_flat(const PrepareMemory& memory, const FlatTiles& tiles, FlatSums& of_queries, FlatSums& of_keys) {
  const int later = (tiles.row / 2 + lane() / 4) * FLAT_TWO_PITCH + lane() % 4 * 4, earlier = (tiles.column + lane() / 4) * FLAT_PITCH + lane() % 4 * 2;
#pragma unroll 2
  for (int key = 0; key < KEYS / 2; key += 8) {
    SplitFactor<4> q, k;
    const Pack<float, 4> queries = load_pack<4>(memory.flat.queries + later + 2 * key), keys = load_pack<4>(memory.flat.keys + later + 2 * key);
#pragma unroll
    for (int i = 0; i < 4; ++i) q.set(i, queries.at[i]), k.set(i, keys.at[i]);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (n >= tiles.count) continue;
      const Pack<float, 2> e = load_pack<2>(memory.flat.earlier + earlier + 8 * n * FLAT_PITCH + key);
      SplitFactor<2> b;
      b.set(0, e.at[0]), b.set(1, e.at[1]);
      if (PAIR_PIECES > 1) mma_16x8x8(of_queries[n], q.rest, b.all);
      mma_16x8x8(of_queries[n], q.all, b.rest);
      mma_16x8x8(of_queries[n], q.all, b.all);
      mma_split(of_keys[n], of_keys[n], k, b);
    }
  }
}
// Pairs of all tokens. Threads are together before it and before `use`. use(t, s, of queries, of keys), also where s > t: then they are of no meaning.
template <class Use> static inline void multiply_flat_pairs(PrepareMemory& memory, OwnRows& own, Use use) {
  constexpr int TURNS = 8 / PREPARE_WARPS;
  FlatSums of_queries[TURNS] = {}, of_keys[TURNS] = {};
  const auto multiply = [&] {
    sync_block();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) multiply_flat(memory, FlatTiles(uniform(warp()) + turn * PREPARE_WARPS), of_queries[turn], of_keys[turn]);
  };
  float* gates = memory.m.system;  // there is no system yet
  static_assert(sizeof(Matrices) >= 2 * PART * PREPARE_THREADS * sizeof(float));
  own.put_gates(gates);
  put_flat<0>(memory, own);
  multiply();
  sync_block();
  own.take_gates(gates);
  put_flat<1>(memory, own);
  multiply();
  own.take_gates(gates);
  sync_block();
  use_flat_sums(of_queries, of_keys, use);
}
