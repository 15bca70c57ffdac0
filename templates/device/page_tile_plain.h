// GPU vocabulary: a tile of device/page_tile.h, of 16-bit elements, without matrix instructions: for values that products cannot carry.
#pragma once
#include "device/page_tile.h"

template <class T, int KEYS, int FEATURES> struct PlainPageTile {
  using Tile = PageTile<T, KEYS, FEATURES>;
  const char* base;  // the tile's, as a pointer

  const T* at(int key, int chunk) const {
    return reinterpret_cast<const T*>(base + key * Tile::PITCH + (Tile::SWIZZLED ? chunk ^ (key & 7) : chunk) * 16);
  }

  // Whether all its elements are finite; by a whole warp.
  bool finite() const {
    float zero = 0;
#pragma unroll 1
    for (int i = lane(); i < KEYS * Tile::CHUNKS; i += WARP) {
      const Pack<T, 8> pack = load_pack<8>(at(i / Tile::CHUNKS, i % Tile::CHUNKS));
#pragma unroll
      for (int k = 0; k < 8; ++k) zero += to_float(pack.at[k]) * 0;
    }
    return !any_in_warp(zero != 0);  // NaN
  }

  // Tile::add_values(), of weights as they come from Tile::multiply_keys(), where a value behind a weight of 0 counts as 0: it may be of a
  // key that the row does not see.
  template <int ROW_TILES> void add_values(float (&o)[Tile::SLICES][ROW_TILES][4], const float (&p)[Tile::TILES][ROW_TILES][4]) const {
#pragma unroll
    for (int m = 0; m < Tile::TILES; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll 1
        for (int g = 0; g < 8; ++g) {
          float w[ROW_TILES][2];
#pragma unroll
          for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
            for (int i = 0; i < 2; ++i) w[r][i] = shuffle(p[m][r][2 * h + i], g * 4 + lane() % 4);
#pragma unroll
          for (int f = 0; f < Tile::SLICES; ++f)
#pragma unroll
            for (int k = 0; k < 2; ++k) {
              const float x = to_float(at(16 * m + 8 * h + g, 2 * f + k)[lane() / 4]);
#pragma unroll
              for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
                for (int i = 0; i < 2; ++i) o[f][r][2 * k + i] += w[r][i] == 0 ? 0 : w[r][i] * x;
            }
        }
  }
};
