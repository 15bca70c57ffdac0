// Hopper vocabulary of the attention kernels: what is seldom done, in little code and without calls, which would make wgmma wait.
#pragma once
#include "device/sm90_attention_tiles.h"

// Sinks (attention.h) whose elements are read in place.
struct InlineSinks : Sinks {
  int64_t element_type;
  InlineSinks(const View& view, int64_t type, int64_t head, int64_t heads) : Sinks(view, type, head, heads), element_type(type) {}
  float operator[](int64_t i) const {
    if (element_type == TYPE_F16) return to_float(static_cast<const half*>(data)[first + i]);
    if (element_type == TYPE_BF16) return to_float(static_cast<const bfloat16*>(data)[first + i]);
    return static_cast<const float*>(data)[first + i];
  }
};

// A row of a tile by the definition, by a warp: only values that it sees with a weight are read. `reference` and `sum`: its softmax.
template <class T, bool CAPPED, int DV>
static inline void attend_row_plainly(const Heads<const T>& q, const Heads<const T>& k, const Heads<const T>& v, const Heads<T>& out,
                                      const AttentionTile& tile, int row, int kv_head, int head_dim, const RowRange& range, float scale,
                                      float soft_cap, float unit, float reference, float sum) {
  constexpr int FEATURES = (DV + WARP - 1) / WARP;  // a lane has
  const T* query = q.row(tile.batch, tile.first_query + tile.first_row + row, tile.head);
  float output[FEATURES] = {};
#pragma unroll 1
  for (int first = range.first; first < range.end; first += WARP) {
    const bool seen = first + lane() < range.end;
    const T* key = k.row(tile.batch, tile.first_key + first + (seen ? lane() : 0), kv_head);
    float score = 0;
#pragma unroll 1
    for (int d = 0; d < head_dim; ++d) score += to_float(query[d]) * to_float(key[d]);
    if (CAPPED) score = soft_cap * LOG2_E * tanh_of(score * (scale / soft_cap));
    const float weight = seen ? exp2_of(score * unit - reference) : 0;
#pragma unroll 1
    for (int j = 0; j < WARP; ++j) {
      const float w = shuffle(weight, j);
      if (w == 0) continue;
      const T* value = v.row(tile.batch, tile.first_key + first + j, kv_head);
#pragma unroll
      for (int i = 0; i < FEATURES; ++i)
        if (lane() + WARP * i < DV) output[i] += w * to_float(value[lane() + WARP * i]);
    }
  }
  const float factor = sum == 0 ? 0 : reciprocal(sum);
  T* to = out.row(tile.batch, tile.first_query + tile.first_row + row, tile.head);
#pragma unroll
  for (int i = 0; i < FEATURES; ++i)
    if (lane() + WARP * i < DV) to[lane() + WARP * i] = from_float<T>(output[i] * factor);
}
