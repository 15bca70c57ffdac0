// GPU vocabulary of the chunked recurrence: products of a warp's part of a state, whose operands and sums stay in registers. Matrices of
// values by keys, or by tokens, stand for their transposes: so a sum's fragment is the next product's operand A.
#pragma once
#include "recurrent/chunk_rows.h"

static inline float low_of(uint32_t pair) { return to_float(__builtin_bit_cast(Element, static_cast<uint16_t>(pair))); }
static inline float high_of(uint32_t pair) { return to_float(__builtin_bit_cast(Element, static_cast<uint16_t>(pair >> 16))); }

// Sums of values by 16 N keys or tokens.
template <int N> using Sums = float[2 * N][4];
// The same as operands A; two of them, of which the second is what rounding took from the first.
template <int N> using Operands = uint32_t[N][4];

// Number i of operand A's words is of words 2 (i % 2) and on of the sums i / 2 of two.
static inline void to_operand(uint32_t (&a)[4], const float (&first)[4], const float (&second)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&x)[4] = i < 2 ? first : second;
    a[i] = pack_pair<Element>(x[i % 2 * 2], x[i % 2 * 2 + 1]);
  }
}
static inline uint32_t rounding_of(float low, float high, uint32_t pair) {
  return pack_pair<Element>(low - low_of(pair), high - high_of(pair));
}
static inline void to_operands(uint32_t (&a)[4], uint32_t (&rest)[4], const float (&first)[4], const float (&second)[4]) {
  to_operand(a, first, second);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&x)[4] = i < 2 ? first : second;
    rest[i] = rounding_of(x[i % 2 * 2], x[i % 2 * 2 + 1], a[i]);
  }
}
static inline void to_sums(float (&first)[4], float (&second)[4], const uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float(&x)[4] = i < 2 ? first : second;
    x[i % 2 * 2] = low_of(a[i]), x[i % 2 * 2 + 1] = high_of(a[i]);
  }
}

static inline void multiply_two(float (&first)[4], float (&second)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  mma_16x8x16<Element>(first, a, b[0], b[1]);
  mma_16x8x16<Element>(second, a, b[2], b[3]);
}

// sums += state rows^T: of values by tokens. PRECISE: the state is two operands. `unit` is multiplied in beforehand.
template <bool PRECISE, int TILES, class Rows>
static inline void add_seen(Sums<4>& sums, const float (&state)[TILES][4], const Rows& rows, float unit) {
  constexpr int SLICES_OF_KEYS = TILES / 2;
  constexpr int AHEAD = SLICES_OF_KEYS > 8 ? 0 : 1;  // a larger state leaves no registers for the next slice's
  uint32_t b[2][4][4];
  const auto load = [&](int k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) rows.load_b(b[k % 2][r], 16 * r, 16 * k);
  };
  if (AHEAD) load(0);
#pragma unroll
  for (int k = 0; k < SLICES_OF_KEYS; ++k) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    if (k + AHEAD < SLICES_OF_KEYS) load(k + AHEAD);
    uint32_t a[4], rest[4];
    float first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = state[2 * k][i] * unit, second[i] = state[2 * k + 1][i] * unit;
    if constexpr (PRECISE) to_operands(a, rest, first, second);
    else to_operand(a, first, second);
#pragma unroll
    for (int r = 0; r < 4; ++r) multiply_two(sums[2 * r], sums[2 * r + 1], a, b[k % 2][r]);
    if constexpr (PRECISE) {
#pragma unroll
      for (int r = 0; r < 4; ++r) multiply_two(sums[2 * r], sums[2 * r + 1], rest, b[k % 2][r]);
    }
  }
}

// The least of three elements of each number: what the other two leave.
static inline void to_least(uint32_t (&to)[4], float (&first)[4], float (&second)[4]) {
  uint32_t all[4], rest[4];
  to_operands(all, rest, first, second);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float* x = (i < 2 ? first : second) + i % 2 * 2;
    x[0] -= low_of(all[i]), x[1] -= high_of(all[i]);
    to[i] = rounding_of(x[0], x[1], rest[i]);
  }
}
// sums += the least of three operands of a state times rows^T.
template <int TILES, class Rows> static inline void add_least_seen(Sums<4>& sums, const float (&state)[TILES][4], const Rows& rows) {
#pragma unroll
  for (int k = 0; k < TILES / 2; ++k) {
    sync_warp();
    float first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = state[2 * k][i], second[i] = state[2 * k + 1][i];
    uint32_t least[4];
    to_least(least, first, second);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      uint32_t b[4];
      rows.load_b(b, 16 * r, 16 * k);
      multiply_two(sums[2 * r], sums[2 * r + 1], least, b);
    }
  }
}

// sums += left square^T, where square is lower triangular by blocks of 16: of values by tokens.
template <class Square> static inline void add_triangle(Sums<4>& sums, const Operands<4>& left, const Square& square) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    sync_warp();
#pragma unroll
    for (int r = c; r < 4; ++r) {
      uint32_t b[4];
      square.load_b(b, 16 * r, 16 * c);
      multiply_two(sums[2 * r], sums[2 * r + 1], left[c], b);
    }
  }
}

// sums += (left + left_rest) (square + its rest)^T; the square's rest lies behind it. With the product of both rests: where the square is an
// inverse, what is summed may be far larger than its sum. In a loop, so that no operands of the next product are loaded before this one is
// done: there are no registers for them.
template <class Square>
static inline void add_triangle_precisely(Sums<4>& sums, const Operands<4>& left, const Operands<4>& left_rest, SharedPointer square) {
#pragma unroll 1
  for (int product = 0; product < 4; ++product) {
    Operands<4> a;
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[c][i] = product < 2 ? left_rest[c][i] : left[c][i];
    add_triangle(sums, a, Square{square + (product % 2 == 0 ? Square::BYTES : 0)});
  }
}

// state = (base + rest) state + (written + what rounding took from it) keys. Sums of a chunk begin at 0: matrix instructions round down.
template <int TILES, class Keys>
static inline void take_in(float (&state)[TILES][4], float base, float rest, const Operands<4>& written, const Operands<4>& written_rest,
                           const Keys& keys) {
  constexpr int SLICES_OF_KEYS = TILES / 2;
  constexpr int AHEAD = SLICES_OF_KEYS > 8 ? 0 : 1;  // a larger state leaves no registers for the next slice's
  uint32_t b[2][4][4];
  const auto load = [&](int k) {
#pragma unroll
    for (int c = 0; c < 4; ++c) keys.load_b_transposed(b[k % 2][c], 16 * c, 16 * k);
  };
  if (AHEAD) load(0);
#pragma unroll
  for (int k = 0; k < SLICES_OF_KEYS; ++k) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    if (k + AHEAD < SLICES_OF_KEYS) load(k + AHEAD);
    float sums[4][4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      multiply_two(sums[0], sums[1], written[c], b[k % 2][c]);
      multiply_two(sums[2], sums[3], written_rest[c], b[k % 2][c]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * base + (x * rest + (sums[n][i] + sums[2 + n][i]));
      }
  }
}

// state += written keys.
template <int TILES, class Keys> static inline void add_written(float (&state)[TILES][4], const Operands<4>& written, const Keys& keys) {
#pragma unroll
  for (int k = 0; k < TILES / 2; ++k) {
    sync_warp();
    float sums[2][4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint32_t b[4];
      keys.load_b_transposed(b, 16 * c, 16 * k);
      multiply_two(sums[0], sums[1], written[c], b);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state[2 * k + n][i] += sums[n][i];
  }
}
