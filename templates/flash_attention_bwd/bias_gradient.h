// GPU vocabulary of the attention kernels' gradients: dbias by additions to f32 sums [Bb, Hb, Sq, Sk] in global memory, which are cleared
// before and stored as bias's type after.
#pragma once
#include "flash_attention_bwd/attention_backward.h"
#include "device/tile/sums.h"

// Of a lane and a step: where its first key and query lie in the sums, and how many keys and queries are left from there on.
struct BiasSums {
  float* first;
  int64_t row;  // floats from query to query
  int keys, queries;

  // Key and query: this lane's first.
  static BiasSums at(float* sums, const View& bias, const Sequence& sequence, int head, int query, int key) {
    const int64_t before = ((bias.shape[0] == 1 ? 0 : sequence.batch) * bias.shape[1] + (bias.shape[1] == 1 ? 0 : head)) * bias.shape[2];
    return {sums + (before + query) * bias.shape[3] + key, bias.shape[3], static_cast<int>(sequence.keys) - key,
            static_cast<int>(sequence.queries) - query};
  }
  void add(int key, int query, float x) const {
    if (key < keys && query < queries && x != 0) add_to_sum(first + query * row + key, x);
  }
};

// By all blocks of a grid of THREADS threads each.
template <int THREADS> static inline void clear_bias_sums(float* sums, int64_t count) {
#pragma unroll 1
  for (int64_t i = block_x() * int64_t{THREADS} + thread_x(); i < count; i += grid_x() * int64_t{THREADS}) sums[i] = 0;
}
template <int THREADS> static inline void store_bias(const View& dbias, int64_t type, const float* sums, int64_t count) {
  const int64_t keys = dbias.shape[3], queries = dbias.shape[2], heads = dbias.shape[1];
#pragma unroll 1
  for (int64_t i = block_x() * int64_t{THREADS} + thread_x(); i < count; i += grid_x() * int64_t{THREADS}) {
    const int64_t row = i / keys, plane = row / queries, batch = plane / heads;
    const int64_t to = batch * dbias.strides[0] + (plane - batch * heads) * dbias.strides[1] + (row - plane * queries) * dbias.strides[2];
    store_element(dbias.data, type, to + i - row * keys, sums[i]);
  }
}
