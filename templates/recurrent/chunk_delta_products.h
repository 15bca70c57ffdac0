// GPU vocabulary of the chunked recurrence with the delta rule: products with a chunk's inverse, and what tokens write. Part of a template,
// which has defined INVERSE_PARTS before.
#pragma once
#include "recurrent/chunk_matrix.h"

// A beta of 0 becomes a number of which a state sees nothing, but by which what a token writes can be divided again: that gives the
// gradient of beta.
static inline float not_zero(float beta) {
  constexpr float LEAST = 0x1p-60f;
  return beta > -LEAST && beta < LEAST ? (beta < 0 ? -LEAST : LEAST) : beta;
}

// The inverse as matrices of elements one after another, each of which is what rounding took from those before it.
template <int BLOCK_THREADS> static inline void store_inverse_parts(const Matrices& m, Element* to) {
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * CHUNK / 8; i += BLOCK_THREADS) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<float, 8> x;
#pragma unroll
    for (int j = 0; j < 8; ++j) x.at[j] = column + j <= row ? m.inverse[row * PITCH + column + j] : 0;
#pragma unroll
    for (int part = 0; part < INVERSE_PARTS; ++part) {
      Pack<Element, 8> elements;
#pragma unroll
      for (int j = 0; j < 8; ++j) elements.at[j] = from_float<Element>(x.at[j]), x.at[j] -= to_float(elements.at[j]);
      store_pack(to + part * CHUNK * CHUNK + i * 8, elements);
    }
  }
}

// sums += left square, where square is lower triangular by blocks of 16: of values by tokens.
static inline void add_triangle_back(Sums<4>& sums, const Operands<4>& left, const Square& square) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    sync_warp();
#pragma unroll
    for (int r = 0; r <= c; ++r) {
      uint32_t b[4];
      square.load_b_transposed(b, 16 * c, 16 * r);
      multiply_two(sums[2 * r], sums[2 * r + 1], left[c], b);
    }
  }
}
// sums += numbers square^T, or (BACK) numbers square, where square is the inverse. Its rows may be far from orthogonal, so that errors of
// both grow: PRECISE, both are three operands, of whose products those are left out that are below the last digits. In a loop, for
// the sake of registers.
template <bool BACK> static inline void add_inverse(Sums<4>& sums, const Sums<4>& numbers, SharedPointer square) {
  Operands<4> parts[INVERSE_PARTS];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float x[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[n][i] = numbers[2 * c + n][i];
#pragma unroll
    for (int part = 0; part < INVERSE_PARTS; ++part) {
      float taken[2][4];
      to_operand(parts[part][c], x[0], x[1]);
      to_sums(taken[0], taken[1], parts[part][c]);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) x[n][i] -= taken[n][i];
    }
  }
#pragma unroll 1
  for (int of_square = INVERSE_PARTS - 1; of_square >= 0; --of_square) {
    const Square part{square + of_square * Square::BYTES};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      sync_warp();
#pragma unroll
      for (int r = BACK ? 0 : c; r < (BACK ? c + 1 : 4); ++r) {
        uint32_t b[4];
        if constexpr (BACK) part.load_b_transposed(b, 16 * c, 16 * r);
        else part.load_b(b, 16 * r, 16 * c);
#pragma unroll
        for (int of_left = INVERSE_PARTS - 1; of_left >= 0; --of_left)
          if (of_left + of_square < INVERSE_PARTS) multiply_two(sums[2 * r], sums[2 * r + 1], parts[of_left][c], b);
      }
    }
  }
}

// What tokens write (or its gradient), of values by tokens, to rows of tokens; so many parts of it, `part_stride` elements apart.
$if narrow  // halves: times a unit
template <int COUNT> static inline void store_written(const Sums<4>& sums, Element* to, int64_t stride, int64_t part_stride, float unit) {
$else
template <int COUNT> static inline void store_written(const Sums<4>& sums, Element* to, int64_t stride, int64_t part_stride) {
$end
  Element* at = to + lane() / 4 * stride + lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x = sums[n][2 * h]${narrow ? ' * unit' : ''}, y = sums[n][2 * h + 1]${narrow ? ' * unit' : ''};
#pragma unroll
      for (int part = 0; part < COUNT; ++part) {
        const uint32_t word = pack_pair<Element>(x, y);
        x -= low_of(word), y -= high_of(word);
        *reinterpret_cast<uint32_t*>(at + part * part_stride + 8 * h) = transpose_matrix(word);
      }
    }
    at = const_cast<Element*>(keep(at + 8 * stride));
  }
}

// Operands of numbers times a factor of each token.
template <class Factor> static inline void weigh_tokens(Operands<4>& to, Operands<4>& rest, const Sums<4>& numbers, Factor factor) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float x[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[n][i] = numbers[2 * c + n][i] * factor(16 * c + 8 * n + lane() % 4 * 2 + i % 2);
    to_operands(to[c], rest[c], x[0], x[1]);
    sync_warp();  // one slice after another, for the sake of registers
  }
}
// Of numbers times a factor of each token, the least of three operands.
template <class Factor> static inline void weigh_least(Operands<4>& to, const Sums<4>& numbers, Factor factor) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float x[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[n][i] = numbers[2 * c + n][i] * factor(16 * c + 8 * n + lane() % 4 * 2 + i % 2);
    to_least(to[c], x[0], x[1]);
    sync_warp();
  }
}
static inline void to_all_sums(Sums<4>& sums, const Operands<4>& a) {
#pragma unroll
  for (int c = 0; c < 4; ++c) to_sums(sums[2 * c], sums[2 * c + 1], a[c]);
}
