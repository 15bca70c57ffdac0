// The outputs of mla_decode on bytes in registers. A part of decode_mma_bytes.gpu.cu, whose constants it uses.
#pragma once

// A warp's features are FEATURES from warp() * FEATURES on, whose scales are those of one block. Of each 16 one product has the even ones, one the odd ones, as they lie in words.
struct Values {
  static constexpr int CHUNKS = FEATURES / 16;
  static_assert(FEATURES <= 128 && 128 % FEATURES == 0);
  const Places& at;
  float o[ROW_TILES][CHUNKS][2][4] = {};  // [odd]

  static int block() { return warp() * FEATURES / 128; }

  // By what at.factors() says.
  void multiply(int tile) {
    float factor[ROW_TILES][2];
    bool some = false;
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        factor[n][h] = at.factors(tile, n * 16 + lane() / 4 + 8 * h)[block()];
        some = some || factor[n][h] != 1;
      }
    if (!any_in_warp(some)) return;
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[n][c][odd][e] *= factor[n][e / 2];
  }
  void add(int tile) {
    const int l = lane();
    multiply(tile);
#pragma unroll 1
    for (int key = 0; key < KEYS; key += 16) {
      uint32_t a[ROW_TILES][4];
#pragma unroll
      for (int n = 0; n < ROW_TILES; ++n)
        load_matrices(a[n], shared_pointer(at.weights(tile, block())) + ((n * 16 + l % 16) * Places::WEIGHT_ROW + l / 16 * 16 + key * 2));
#pragma unroll
      for (int c = 0; c < CHUNKS; c += 2) {
        uint32_t bytes[4];  // of 16 keys a chunk, then the next one
        load_matrices_transposed(bytes, at.row(tile, key + l % 16) + (warp() * FEATURES + (c + l / 16) * 16));
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          uint32_t even[2], odd[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) widen_bytes<float8_e4m3>(swap_middle_bytes(bytes[2 * k + i]), even[i], odd[i]);
#pragma unroll
          for (int n = 0; n < ROW_TILES; ++n) {
            mma_16x8x16<half>(o[n][c + k][0], a[n], even[0], even[1]);
            mma_16x8x16<half>(o[n][c + k][1], a[n], odd[0], odd[1]);
          }
        }
      }
    }
  }

  // To(row, feature, four features from there on) for each row below `rows`.
  template <class To> void store(int rows, To to) {
    multiply(0);
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = n * 16 + lane() / 4 + 8 * h;
        if (row >= rows) continue;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const float x[4] = {o[n][c][0][2 * h], o[n][c][1][2 * h], o[n][c][0][2 * h + 1], o[n][c][1][2 * h + 1]};
          to(row, warp() * FEATURES + c * 16 + lane() % 4 * 4, x);
        }
      }
  }
};
