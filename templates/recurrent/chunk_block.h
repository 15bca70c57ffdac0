// GPU vocabulary of the chunked recurrence: what a block computes of rows in shared memory, and what a warp keeps of a state. Part of a
// template, which has defined Element, KEYS, SLICES, WARPS, THREADS, KeyTile and NARROW before.
#pragma once
#include "device/number/roots.h"
#include "device/tile/transpose.h"
#include "recurrent/chunk_products.h"

// Of rows of q and k: factors that make their norms 1.
struct Norms {
  float q[CHUNK], k[CHUNK];
};

// Factors of the rows of a tile, to `to`: by the threads from `first` on, a row each.
template <int THREADS> static inline void put_norms(const char* tile, int first, float* to) {
  for (int row = thread_x() - first; row >= 0 && row < CHUNK; row += THREADS) {
    const Element* at = reinterpret_cast<const Element*>(tile) + row * KeyTile::PITCH;
    float squares = 0;
#pragma unroll 4
    for (int i = 0; i < KEYS; i += 8) {
      const Pack<Element, 8> x = load_pack<8>(at + i);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += to_float(x.at[j]) * to_float(x.at[j]);
    }
    to[row] = rsqrt_of(squares + 1e-6f);
  }
}

// Blocks of 16 x 16 of the lower triangle, one after another.
static inline int block_row(int i) { return i < 1 ? 0 : i < 3 ? 1 : i < 6 ? 2 : 3; }
static inline int block_column(int i) { return i - block_row(i) * (block_row(i) + 1) / 2; }

// Products of the rows of two tiles, of the blocks of the lower triangle. Calls use(t, s, x, y) for those of row t with rows s and s + 1.
template <class Use> static inline void multiply_rows(const KeyTile& left, const KeyTile& right, Use use) {
#pragma unroll 1
  for (int block = warp(); block < 10; block += WARPS) {
    const int row = 16 * block_row(block), column = 16 * block_column(block);
    float sums[2][2][4] = {};  // of even and of odd slices: fewer products wait for others
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      left.load_a(a, row, 16 * k);
      right.load_b(b, column, 16 * k);
      multiply_two(sums[k % 2][0], sums[k % 2][1], a, b);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        use(row + 8 * h + lane() / 4, column + 8 * n + lane() % 4 * 2, sums[0][n][2 * h] + sums[1][n][2 * h],
            sums[0][n][2 * h + 1] + sums[1][n][2 * h + 1]);
  }
}

// A warp's columns of a state, by keys: sums n has keys 8 n up to 8 n + 8.
using State = Sums<SLICES>;
#include "recurrent/chunk_state_memory.h"
using StateMemory = StateInMemory<${dual}>;

// A power of two by which a state becomes small enough for elements.
static inline float unit_of(const State& state) {
  if constexpr (!NARROW) return 1;
  float largest = 0;
#pragma unroll
  for (int n = 0; n < 2 * SLICES; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = larger_of(largest, larger_of(state[n][i], -state[n][i]));
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
  const int exponent = static_cast<int>(__builtin_bit_cast(uint32_t, largest) >> 23);
  return exponent < 141 || exponent > 253 ? 1 : __builtin_bit_cast(float, static_cast<uint32_t>(127 + 141 - exponent) << 23);
}

// Multiplies sums of values by tokens by a factor of each token.
template <class Factor> static inline void scale_tokens(Sums<4>& sums, Factor factor) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x = factor(8 * n + lane() % 4 * 2 + i);
      sums[n][i] *= x, sums[n][2 + i] *= x;
    }
}

// Rows of `out` from the warp's first column on.
struct OutRows {
  Element* first;
  int stride, columns;  // stride: elements

  OutRows(const View& view, const Tokens& tokens, int64_t head, int64_t column, bool reverse)
      : first(static_cast<Element*>(view.data)), stride(static_cast<int>(reverse ? -view.strides[1] : view.strides[1])),
        columns(static_cast<int>(view.shape[3] - column)) {
    const int64_t token = reverse ? tokens.end - 1 : tokens.first;
    first += tokens.row * view.strides[0] + token * view.strides[1] + head * view.strides[2] + column;
  }
  void store(const Sums<4>& sums, int token, int count) const {
    const int left = count - token;
    const Element* at = first + static_cast<int64_t>(token + lane() / 4) * stride + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t pair = transpose_matrix(pack_pair<Element>(sums[n][2 * h], sums[n][2 * h + 1]));
        const int row = 8 * n + lane() / 4, column = 8 * h + lane() % 4 * 2;
        if (row < left && column < columns) *reinterpret_cast<uint32_t*>(const_cast<Element*>(at) + 8 * h) = pair;
      }
      at = keep(at + 8 * stride);
    }
  }
};

// Where a warp's results go.
struct End {
  OutRows out;
  StateMemory state;
};
