// GPU vocabulary of the chunked recurrence of halves with gates of keys: units of a chunk's rows, beside those of chunk_unit.h. Part of a
// template of f16, which includes it after that.
//
// Weighed rows are rows times factors of at most 1: with a unit of the chunk's queries and one of its keys all of them are halves. Weights of pairs are
// products of such rows: at most KEYS 2^28, which PAIR_FACTOR makes halves again: 2^14.
#pragma once

constexpr float PAIR_FACTOR = ${keys > 128 ? '0x1p-22f' : '0x1p-21f'};
static_assert(KEYS <= ${keys > 128 ? 256 : 128});

// Inverses, of a chunk: of the unit of queries times the scale, of that of keys, of that of queries alone, and of that of the delta rule's inverse.
struct alignas(16) RowUnits {
  float scaled_queries, keys, queries, inverse;
  float of_pairs() const { return scaled_queries * keys * (1 / PAIR_FACTOR); }
};

// By all threads of a block, between whose barriers this is: units of a chunk's queries and keys from the largest of each thread's.
struct LargestRows {
  float queries = 0, keys = 0;
  void put(float* place) const {
    const float largest_query = largest_of_warp(queries), largest_key = largest_of_warp(keys);
    if (lane() == 0) store_pack(place + 2 * warp(), Pack<float, 2>{largest_query, largest_key});
  }
  template <int BLOCK_WARPS> static LargestRows of_all(const float* place) {
    LargestRows all;
#pragma unroll
    for (int i = 0; i < BLOCK_WARPS; ++i) all.queries = larger_of(all.queries, place[2 * i]), all.keys = larger_of(all.keys, place[2 * i + 1]);
    return all;
  }
};
