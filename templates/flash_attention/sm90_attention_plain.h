// Hopper vocabulary of the attention kernels: what is seldom done, in little code and without calls, which would make wgmma wait.
#pragma once
#include "device/sm90/sm90_attention_tiles.h"
#include "device/sm90/sm90_inline_sinks.h"

// What a row asks of a key in its range: nothing. (sm90_attention_segments.h, sm90_attention_dropout.h)
struct NoKeyRule {
  bool sees(const AttentionTile&, int, int) const { return true; }   // row of the tile, key
  bool keeps(const AttentionTile&, int, int) const { return true; }  // its weight
  float factor() const { return 1; }                                 // of what is kept
};

// What a call is given, as rows by the definition need it.
template <class T, class KeyRule = NoKeyRule> struct PlainAttention {
  Heads<const T> q, k, v;
  Heads<T> out;
  const View &sinks, &lse;
  int64_t sinks_type;
  int head_dim;
  float scale, soft_cap;  // 0: off
  KeyRule rule = {};
$if latent
  Heads<const T> q_rope, k_rope;  // more features of queries and keys
  int rope_dim;
$end

  void start(const AttentionTile& tile, float& reference, float& sum) const {
    reference = LOWEST, sum = 0;
    if (is_given(sinks) && !tile.past_the_end) InlineSinks(sinks, sinks_type, tile.head, q.heads).start(reference, sum);
  }
  T* out_row(const AttentionTile& tile, int row) const { return out.row(tile.batch, tile.first_query + tile.first_row + row, tile.head); }

  // A tile whose rows see no key, by a warp.
  template <int DV> void finish_empty(const AttentionTile& tile) const {
    static_assert(DV <= WARP * 8);
#pragma unroll 1
    for (int row = 0; row < tile.rows; ++row)
      if (lane() * 8 < DV) store_pack(out_row(tile, row) + lane() * 8, Pack<T, 8>{});
    if (!is_given(lse)) return;
    float reference, sum;
    start(tile, reference, sum);
#pragma unroll 1
    for (int row = lane(); row < tile.rows; row += WARP) store_lse(lse, tile.sequence(), tile.place(row), reference, sum);
  }

  // A row of a tile by the definition, by a warp: values behind a weight of 0 are not read. adjust(score, key): a score that is seen, in units
  // of log 2, with what is given for it.
  template <int DV, class Adjust> void attend(const AttentionTile& tile, int row, const RowRange& range, const Adjust& adjust) const {
    constexpr int FEATURES = (DV + WARP - 1) / WARP;  // a lane has
    const int kv_head = tile.head / (static_cast<int>(q.heads) / static_cast<int>(k.heads));
    const T* query = q.row(tile.batch, tile.first_query + tile.first_row + row, tile.head);
    float output[FEATURES] = {}, reference, sum;
    start(tile, reference, sum);
    if (lane() != 0) sum = 0;
#pragma unroll 1
    for (int first = range.first; first < range.end; first += WARP) {
      const bool seen = first + lane() < range.end && rule.sees(tile, row, first + lane());
      const T* key = k.row(tile.batch, tile.first_key + first + (seen ? lane() : 0), kv_head);
      float score = 0;
#pragma unroll 1
      for (int d = 0; d < head_dim; ++d) score += to_float(query[d]) * to_float(key[d]);
$if latent
      const T *query_rope = q_rope.row(tile.batch, tile.first_row + row, tile.head), *key_rope = k_rope.row(tile.batch, first + (seen ? lane() : 0), 0);
#pragma unroll 1
      for (int d = 0; d < rope_dim; ++d) score += to_float(query_rope[d]) * to_float(key_rope[d]);
$end
      score = (soft_cap > 0 ? soft_cap * far_tanh_of(score * (scale / soft_cap)) : score * scale) * LOG2_E;
      score = seen ? adjust(score, first + lane()) : -INFINITE;
      float largest = larger_of(score, reference);
      for (int mask = WARP / 2; mask > 0; mask /= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      const float factor = exp2_of(reference - largest), weight = exp2_of(score - largest);
      reference = largest;
      sum = sum * factor + weight;
      const float kept = rule.keeps(tile, row, first + lane()) ? weight : 0;
#pragma unroll
      for (int i = 0; i < FEATURES; ++i) output[i] *= factor;
#pragma unroll 1
      for (int j = 0; j < WARP; ++j) {
        const float w = shuffle(kept, j);
        if (w == 0) continue;
        const T* value = v.row(tile.batch, tile.first_key + first + j, kv_head);
#pragma unroll
        for (int i = 0; i < FEATURES; ++i)
          if (lane() + WARP * i < DV) output[i] += w * to_float(value[lane() + WARP * i]);
      }
    }
    for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    const float factor = sum == 0 ? 0 : rule.factor() * reciprocal(sum);
    T* to = out_row(tile, row);
#pragma unroll
    for (int i = 0; i < FEATURES; ++i)
      if (lane() + WARP * i < DV) to[lane() + WARP * i] = from_float<T>(output[i] * factor);
  }

  // Whether an output of the row is not finite.
  template <int DV> bool is_broken(const AttentionTile& tile, int row) const {
    const T* from = out_row(tile, row);
    float zero = 0;
    for (int i = lane(); i < DV; i += WARP) zero += to_float(from[i]) * 0;
    return any_in_warp(zero != 0);
  }
};
