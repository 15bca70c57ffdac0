// GPU vocabulary of the chunked recurrence: a chunk's matrix of the delta rule and its inverse, in f32 in shared memory.
//
// Row t of the system is u_t + sum over s < t of beta_t e^(c_t - c_s) (k_t . k_s) u_s = ...: 1 on the diagonal, 0 above it, neither of
// which is stored. Blocks of 16 on the diagonal are inverted row by row, the others by
//   inverse (r, c) = -inverse (r, r) sum over c <= l < r of system (r, l) inverse (l, c).
#pragma once
#include "recurrent/chunk_products.h"

constexpr int PITCH = CHUNK + 1;
struct Matrices {
  float system[CHUNK * PITCH], inverse[CHUNK * PITCH];
};

// A half warp inverts a block on the diagonal, a column a lane.
template <int WARPS> static inline void invert_diagonal(Matrices& m) {
#pragma unroll 1
  for (int block = 2 * warp() + lane() / 16; block < 4; block += 2 * WARPS) {
    const int at = 16 * block * PITCH + 16 * block, column = lane() % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = i == column ? 1 : 0;
#pragma unroll
      for (int l = 0; l < i; ++l) x[i] -= m.system[at + i * PITCH + l] * x[l];
      m.inverse[at + i * PITCH + column] = x[i];
    }
  }
}

// Blocks `distance` below the diagonal. Their sums lie above it for a while.
template <int THREADS> static inline void invert_below(Matrices& m, int distance) {
  const int blocks = 4 - distance;
#pragma unroll 1
  for (int i = thread_x(); i < blocks * 256; i += THREADS) {
    const int c = 16 * (i / 256), r = c + 16 * distance, row = r + i / 16 % 16, column = c + i % 16;
    float sum = 0;
#pragma unroll 16
    for (int l = c; l < r; ++l) sum += m.system[row * PITCH + l] * m.inverse[l * PITCH + column];
    m.inverse[(row - 16 * distance) * PITCH + column + 16 * distance] = sum;
  }
  sync_block();
#pragma unroll 1
  for (int i = thread_x(); i < blocks * 256; i += THREADS) {
    const int c = 16 * (i / 256), r = c + 16 * distance, row = r + i / 16 % 16, column = c + i % 16;
    float sum = 0;
#pragma unroll
    for (int l = 0; l < 16; ++l) sum += m.inverse[row * PITCH + r + l] * m.inverse[(c + l) * PITCH + column + 16 * distance];
    m.inverse[row * PITCH + column] = -sum;
  }
  sync_block();
}

// After a barrier: the system's inverse, by all threads; they end with a barrier.
template <int THREADS> static inline void invert_system(Matrices& m) {
  invert_diagonal<THREADS / WARP>(m);
  sync_block();
#pragma unroll 1
  for (int distance = 1; distance < 4; ++distance) invert_below<THREADS>(m, distance);
}

// The inverse, column s times factor(s), as two matrices of elements one after another, the second of which is what rounding took from the
// first.
template <int THREADS, class Factor> static inline void store_inverse(const Matrices& m, Element* to, Factor factor) {
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * CHUNK / 8; i += THREADS) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<Element, 8> all, rest;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = column + j <= row ? m.inverse[row * PITCH + column + j] * factor(column + j) : 0;
      all.at[j] = from_float<Element>(x), rest.at[j] = from_float<Element>(x - to_float(all.at[j]));
    }
    store_pack(to + i * 8, all);
    store_pack(to + CHUNK * CHUNK + i * 8, rest);
  }
}
