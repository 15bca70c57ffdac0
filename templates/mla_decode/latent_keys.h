// Vocabulary of every backend: which rows of latent and rope features the queries of mla_decode see, and where they lie. Part of a template, which has
// defined before: Cached, the type of a cache's elements.
#pragma once
#include "device/number/float8.h"

// Where a token's features lie; null: there is no token.
struct LatentRow {
  const Cached *latent, *rope;
};

// Pages of tokens, or where there is no table the tokens of each sequence.
struct LatentCache {
  const Cached *latents, *ropes;
  int64_t latent_outer, latent_inner, rope_outer, rope_inner;  // strides in elements: of pages or sequences, and of tokens
  int64_t page_size;

  LatentRow row(int64_t outer, int64_t inner) const {
    return {latents + outer * latent_outer + inner * latent_inner, ropes + outer * rope_outer + inner * rope_inner};
  }
  LatentRow slot(int64_t number) const { return row(number / page_size, number % page_size); }
};

// The keys of some queries, by their number: tokens of sequence `sequence`, or entries of a query's list.
struct LatentKeys {
  LatentCache cache;
  const int32_t *table, *list;  // pages of the sequence; or slots. Both null: tokens lie in one piece
  int64_t sequence;

  LatentRow operator[](int64_t key) const {
    if (list) return list[key] < 0 ? LatentRow{nullptr, nullptr} : cache.slot(list[key]);
    if (!table) return cache.row(sequence, key);
    return cache.row(table[key / cache.page_size], key % cache.page_size);
  }
};

// How many of the first tokens query i of a sequence's last `queries` sees.
static inline int64_t visible_tokens(int64_t length, int64_t queries, int64_t i) {
  const int64_t visible = length - queries + 1 + i;
  return visible < 0 ? 0 : visible;
}

// A feature of a row. Bytes: e4m3 times the f32 of its 128, which follow the R latent features; bf16.
template <class T> static inline float latent_of(const T* latent, int64_t d, int64_t) { return to_float(latent[d]); }
template <class T> static inline float rope_of(const T* rope, int64_t d) { return to_float(rope[d]); }

static inline float latent_scale(const uint8_t* latent, int64_t d, int64_t features) {
  const uint8_t* at = latent + features + d / 128 * 4;
  const uint32_t bits = at[0] | static_cast<uint32_t>(at[1]) << 8 | static_cast<uint32_t>(at[2]) << 16 | static_cast<uint32_t>(at[3]) << 24;
  return __builtin_bit_cast(float, bits);
}
static inline float latent_of(const uint8_t* latent, int64_t d, int64_t features) {
  return to_float(float8_e4m3{latent[d]}) * latent_scale(latent, d, features);
}
static inline float rope_of(const uint8_t* rope, int64_t d) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(rope[2 * d]) << 16 | static_cast<uint32_t>(rope[2 * d + 1]) << 24);
}
