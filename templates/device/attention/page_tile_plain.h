// GPU vocabulary: a tile of device/attention/page_tile.h, of 16-bit elements, without matrix instructions: for values that products cannot carry.
#pragma once
#include "device/attention/page_tile.h"
#include "device/tile/transpose.h"

template <class T, int KEYS, int FEATURES> struct PlainPageTile {
  using Tile = PageTile<T, KEYS, FEATURES>;
  const char* base;  // the tile's, as a pointer

  const T* at(int key, int chunk) const {
    return reinterpret_cast<const T*>(base + key * Tile::PITCH + (Tile::SWIZZLED ? chunk ^ (key & 7) : chunk) * 16);
  }

  // Adds values of COUNT slices from `first` on, by weights as mma_16x8x16 takes them. A value behind a weight of 0 counts as 0: it may be
  // of a key that the row does not see.
  template <int COUNT, int ROW_TILES>
  void add_values(float (&o)[COUNT][ROW_TILES][4], const uint32_t (&p)[Tile::TILES][ROW_TILES][2], int first) const {
#pragma unroll
    for (int m = 0; m < Tile::TILES; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll 1
        for (int g = 0; g < 8; ++g) {
          float w[ROW_TILES][2];
#pragma unroll
          for (int r = 0; r < ROW_TILES; ++r) {
            const uint32_t pair = shuffle(transpose_matrix(p[m][r][h]), g * 4 + lane() % 4);
#pragma unroll
            for (int i = 0; i < 2; ++i) w[r][i] = to_float(T{static_cast<uint16_t>(pair >> 16 * i)});
          }
#pragma unroll
          for (int f = 0; f < COUNT; ++f) {
            if (first + f >= Tile::SLICES) continue;
#pragma unroll
            for (int k = 0; k < 2; ++k) {
              const float x = to_float(at(16 * m + 8 * h + g, 2 * (first + f) + k)[lane() / 4]);
#pragma unroll
              for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
                for (int i = 0; i < 2; ++i) o[f][r][2 * k + i] += w[r][i] == 0 ? 0 : w[r][i] * x;
            }
          }
        }
  }
};
