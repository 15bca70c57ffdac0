// GPU vocabulary (Hopper): products over all tokens in f32, whose factors are in parts (rnn/rnn_stored.h).
#pragma once
#include "device/sm90/sm90_product.h"
#include "device/sm90/sm90_split_product.h"
#include "rnn/rnn_stored.h"

constexpr int TILE_N = SPLIT_N, TILE_THREADS = SPLIT_THREADS;
using TileSums = SplitSums;
static_assert(SPLIT_M == HOPPER_M && SPLIT_DEPTH == HOPPER_DEPTH);
template <bool LEFT_ALONG, bool RIGHT_ALONG, class Work> static inline void multiply_tiles(const Work& work) { multiply_split_on_hopper<LEFT_ALONG, RIGHT_ALONG>(work); }
static inline void store_tile(const TileSums& sums, int part, float* to, int64_t stride, int64_t rows, int64_t columns) {
  store_split_tile(sums, part, to, stride, rows, columns);
}

// A row of weights a block: [direction][line][width], in parts.
static inline void split_weights_row(void* to, const View& weights, int64_t number) {
  const int64_t lines = weights.shape[1], width = weights.shape[2];
  put_row(to, weights.shape[0] * lines * width, number * width,
          static_cast<const float*>(weights.data) + number / lines * weights.strides[0] + number % lines * weights.strides[1], width);
}
