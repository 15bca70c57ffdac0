// GPU vocabulary of the chunked recurrence: a chunk's matrix of the delta rule and its inverse, in f32 in shared memory.
//
// Row t of the system is u_t + sum over s < t of beta_t e^(c_t - c_s) (k_t . k_s) u_s = ...: 1 on the diagonal, 0 above it, neither of
// which is stored. Blocks of 16 on the diagonal are inverted row by row; of two inverses and the system below the first, those of twice the
// size are made by
//   inverse below = -(second inverse) (system below) (first inverse)
// on matrix instructions: a number is three bf16, which have the digits and the range of f32.
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

// A block of 16 x 16 as operand A, each number three elements, the later of which are what rounding took from those before.
struct BlockPieces {
  uint32_t at[3][4];

  void set(int i, float low, float high) {
#pragma unroll
    for (int piece = 0; piece < 3; ++piece) {
      const uint32_t word = pack_pair<bfloat16>(low, high);
      low -= __builtin_bit_cast(float, word << 16), high -= __builtin_bit_cast(float, word & 0xffff0000u);
      at[piece][i] = word;
    }
  }
  // Of a matrix in shared memory from its block's first number on; or of the block's transpose.
  template <bool TRANSPOSED> static BlockPieces load(const float* from) {
    BlockPieces x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane() / 4 + i % 2 * 8, column = lane() % 4 * 2 + i / 2 * 8;
      if (TRANSPOSED) x.set(i, from[column * PITCH + row], from[(column + 1) * PITCH + row]);
      else x.set(i, from[row * PITCH + column], from[row * PITCH + column + 1]);
    }
    return x;
  }
  static BlockPieces of(const float (&sums)[2][4]) {
    BlockPieces x;
#pragma unroll
    for (int i = 0; i < 4; ++i) x.set(i, sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]);
    return x;
  }
};

// sums += left right^T, without products below the last digits.
static inline void multiply_blocks(float (&sums)[2][4], const BlockPieces& left, const BlockPieces& right) {
#pragma unroll
  for (int order = 2; order >= 0; --order)
#pragma unroll
    for (int piece = 0; piece <= order; ++piece)
#pragma unroll
      for (int n = 0; n < 2; ++n) mma_16x8x16<bfloat16>(sums[n], left.at[piece], right.at[order - piece][n], right.at[order - piece][n + 2]);
}

// A warp makes `column` of N columns of blocks below an inverse of N blocks from block `first` on, beside the inverse after it.
template <int N> static inline void invert_below(Matrices& m, int first, int column) {
  const auto block = [](int row, int column) { return 16 * row * PITCH + 16 * column; };
  BlockPieces seen[N];  // (system below) (first inverse), transposed
#pragma unroll
  for (int row = 0; row < N; ++row) {
    float sums[2][4] = {};
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k >= column)
        multiply_blocks(sums, BlockPieces::load<true>(m.inverse + block(first + k, first + column)),
                        BlockPieces::load<false>(m.system + block(first + N + row, first + k)));
    seen[row] = BlockPieces::of(sums);
  }
#pragma unroll
  for (int row = 0; row < N; ++row) {
    float sums[2][4] = {};
#pragma unroll
    for (int k = 0; k <= row; ++k)
      multiply_blocks(sums, BlockPieces::load<false>(m.inverse + block(first + N + row, first + N + k)), seen[k]);
    float* to = m.inverse + block(first + N + row, first + column) + lane() / 4 * PITCH + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i / 2 * 8 * PITCH + 8 * n + i % 2] = -sums[n][i];
  }
}

// All of them, by all warps of a block, of which each has a block or more; what is made first lies above the diagonal meanwhile.
template <int N, int WARPS> static inline void invert_below_by_all(Matrices& m) {
  const auto block = [](int row, int column) { return 16 * row * PITCH + 16 * column; };
  const auto store = [&](int to, const float(&sums)[2][4], float sign) {
    float* at = m.inverse + to + lane() / 4 * PITCH + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) at[i / 2 * 8 * PITCH + 8 * n + i % 2] = sign * sums[n][i];
  };
#pragma unroll 1
  for (int i = warp(); i < N * N; i += WARPS) {
    const int row = i / N, column = i % N;
    float sums[2][4] = {};
#pragma unroll 1
    for (int k = column; k < N; ++k)
      multiply_blocks(sums, BlockPieces::load<true>(m.inverse + block(k, column)), BlockPieces::load<false>(m.system + block(N + row, k)));
    store(block(row, N + column), sums, 1);
  }
  sync_block();  // (system below) (first inverse), transposed, is there
#pragma unroll 1
  for (int i = warp(); i < N * N; i += WARPS) {
    const int row = i / N, column = i % N;
    float sums[2][4] = {};
#pragma unroll 1
    for (int k = 0; k <= row; ++k)
      multiply_blocks(sums, BlockPieces::load<false>(m.inverse + block(N + row, N + k)), BlockPieces::load<false>(m.inverse + block(k, N + column)));
    store(block(N + row, column), sums, -1);
  }
}

// After a barrier: the system's inverse, by all threads; they end with a barrier.
template <int THREADS> static inline void invert_system(Matrices& m) {
  static_assert(THREADS >= 2 * WARP);
  invert_diagonal<THREADS / WARP>(m);
  sync_block();
  if (warp() < 2) invert_below<1>(m, 2 * warp(), 0);
  sync_block();
  if constexpr (THREADS >= 4 * WARP) invert_below_by_all<2, THREADS / WARP>(m);
  else if (warp() < 2) invert_below<2>(m, 0, warp());
  sync_block();
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
