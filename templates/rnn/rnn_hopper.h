// GPU vocabulary (Hopper): products over all tokens of 16-bit types, whose factors are as they are.
#pragma once
#include "device/sm90/sm90_product.h"

constexpr int TILE_N = HOPPER_N, TILE_THREADS = HOPPER_THREADS;
using TileSums = HopperSums;
template <bool LEFT_ALONG, bool RIGHT_ALONG, class Work> static inline void multiply_tiles(const Work& work) { multiply_on_hopper<Element, LEFT_ALONG, RIGHT_ALONG>(work); }
template <class Out> static inline void store_tile(const TileSums& sums, int part, Out* to, int64_t stride, int64_t rows, int64_t columns) {
  store_hopper_tile(sums, part, to, stride, rows, columns);
}
