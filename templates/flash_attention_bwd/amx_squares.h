// CPU vocabulary of attention's gradients on AMX: scores of squares of 32 query rows x 32 keys become weights and gradients, in bf16 as the
// products after them take them.
#pragma once
#include "device/matrix/product_amx.h"
#include "flash_attention_bwd/gradient_tile.h"

constexpr int64_t SIDE = 32, SQUARE = SIDE * SIDE, NARROW_SQUARE = SQUARE / 2;  // floats of a square of f32, and of one of bf16: two tiles

// Watches bf16 for NaN and infinity.
struct NarrowFiniteness {
  typedef uint16_t Bits __attribute__((vector_size(64)));
  Bits largest = {};
  void see(Bits x) {
    const Bits magnitude = x & 0x7fff;
    largest = magnitude > largest ? magnitude : largest;
  }
  bool holds() const {
    bool finite = true;
    for (int64_t i = 0; i < 32; ++i) finite &= largest[i] < 0x7f80;
    return finite;
  }
};

// Elements [d, d + SIDE) of SIDE rows of `dim`, side by side; zeros past `dim` and for rows that are null. They are a left operand's tiles.
static inline void copy_square(float* to, const bfloat16* const (&rows)[SIDE], int64_t d, int64_t dim, NarrowFiniteness& finite) {
  for (int64_t r = 0; r < SIDE; ++r) {
    NarrowFiniteness::Bits bits = {};
    if (rows[r]) {
      const Floats line = load_line(rows[r] + d, dim - d);
      bits = reinterpret_cast<NarrowFiniteness::Bits>(line);
    }
    finite.see(bits);
    __builtin_memcpy(to + r * LANES, &bits, sizeof bits);
  }
}

// Of a copied square: the right operand's tiles where features are summed over, and keys lie along the vectors.
static inline void turn_square(float* to, const float* square) {
  const bfloat16* from = reinterpret_cast<const bfloat16*>(square);
  for (int64_t half = 0; half < 2; ++half) pack_lines(to + half * TILE_WORDS, from + half * 16 * SIDE, SIDE, 16, SIDE, true);
}

// Of a copied square: tiles of an operand where its rows are summed over; features are a left operand's rows (LEFT), or lie along the vectors.
template <bool LEFT> static inline void pair_square(float* to, const float* square) {
  const bfloat16* from = reinterpret_cast<const bfloat16*>(square);
  for (int64_t half = 0; half < 2; ++half) pack_steps(to + half * TILE_WORDS, from + half * 16, SIDE, 16, SIDE, LEFT);
}

// Scores and gradients of weights of a square, in pieces of four multiplications, between which vectors have work of their own.
template <int64_t Q_STEPS, int64_t DOUT_STEPS> struct SquareProducts {
  static constexpr int64_t PIECES = Q_STEPS + DOUT_STEPS;
  const float *queries, *douts;  // left operands, [step][NARROW_SQUARE]
  const float *keys, *values;    // right operands, likewise
  float *scores, *slopes;        // [SIDE][SIDE]

  void piece(int64_t i) const {
    if (i < Q_STEPS)
      step(queries + i * NARROW_SQUARE, keys + i * NARROW_SQUARE, i == 0, i + 1 == Q_STEPS, scores);
    else
      step(douts + (i - Q_STEPS) * NARROW_SQUARE, values + (i - Q_STEPS) * NARROW_SQUARE, i == Q_STEPS, i + 1 == PIECES, slopes);
  }

 private:
  static void step(const float* left, const float* right, bool first, bool last, float* to) {
    constexpr int64_t LINE = 64, TO = SIDE * 4;  // bytes
    if (first) amx_zero<0>(), amx_zero<1>(), amx_zero<2>(), amx_zero<3>();
    amx_load<4>(left, LINE), amx_load<6>(right, LINE);
    amx_multiply<0, 4, 6>();
    amx_load<7>(right + TILE_WORDS, LINE);
    amx_multiply<1, 4, 7>();
    amx_load<5>(left + TILE_WORDS, LINE);
    amx_multiply<2, 5, 6>();
    amx_multiply<3, 5, 7>();
    if (!last) return;
    amx_store<0>(to, TO), amx_store<1>(to + 16, TO), amx_store<2>(to + 16 * SIDE, TO), amx_store<3>(to + 16 * SIDE + 16, TO);
  }
};

// Where the weights and gradients of a square go, rounded half up.
struct SquareOperands {
  float *weight_pairs, *slope_pairs;  // right operands: rows are summed over, keys lie along the vectors
  float* slope_lines;                 // left operand: keys are summed over

  // Rows 2 p and 2 p + 1, each of two vectors of keys.
  void store(int64_t p, const Floats (&weights)[2][2], const Floats (&slopes)[2][2]) const {
    for (int64_t v = 0; v < 2; ++v) {
      store_floats(weight_pairs + v * TILE_WORDS + p * LANES, pair_of_bf16(weights[0][v], weights[1][v]));
      store_floats(slope_pairs + v * TILE_WORDS + p * LANES, pair_of_bf16(slopes[0][v], slopes[1][v]));
    }
    for (int64_t i = 0; i < 2; ++i) store_floats(slope_lines + (2 * p + i) * LANES, line_of_bf16(slopes[i][0], slopes[i][1]));
  }
  void clear() const {
    constexpr int64_t BYTES = NARROW_SQUARE * sizeof(float);
    __builtin_memset(weight_pairs, 0, BYTES), __builtin_memset(slope_pairs, 0, BYTES), __builtin_memset(slope_lines, 0, BYTES);
  }
};

// A square whose products are there, and nothing but the scale and the range of keys is applied.
struct SquareWeights {
  const float *scores, *slopes;  // [SIDE][SIDE]
  const float *base, *delta;     // [SIDE], as a GradientTile has them
  const Row* row;                // [SIDE]
  int64_t first;                 // key of column 0
  bool every;                    // all rows see all keys of the square
  float unit;
  SquareOperands to;
$if by_blocks
  int64_t keys;                  // of the square: those behind them are of the next block
$end

  // Pairs of rows [begin, end).
  void weigh(int64_t begin, int64_t end) const {
    if (every)
      weigh_pairs<false>(begin, end);
    else
      weigh_pairs<true>(begin, end);
  }

 private:
  template <bool MASKED> void weigh_pairs(int64_t begin, int64_t end) const {
    for (int64_t p = begin; p < end; ++p) {
      Floats weights[2][2], gradients[2][2];
#pragma GCC unroll 2
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t r = 2 * p + i;
        const Floats row_base = splat(base[r]), row_delta = splat(delta[r]);
#pragma GCC unroll 2
        for (int64_t v = 0; v < 2; ++v) {
          const int64_t at = r * SIDE + v * LANES;
          Floats weight = exp2_of(load_floats(scores + at) * unit - row_base), gradient = weight * (load_floats(slopes + at) - row_delta);
          if constexpr (MASKED) {
            weight = visible(r, v) ? weight : Floats{};
            gradient = weight == Floats{} ? Floats{} : gradient;
          }
          weights[i][v] = weight, gradients[i][v] = gradient;
        }
      }
      to.store(p, weights, gradients);
    }
  }

  Integers visible(int64_t r, int64_t v) const {
    const auto local = [&](int64_t key) { return splat_integer(static_cast<int32_t>(smaller(larger(key - first, 0), ${by_blocks ? 'keys' : 'SIDE'}))); };
    const Integers number = splat_integer(static_cast<int32_t>(v * LANES)) + lane_numbers();
    return (number >= local(row[r].keys.first)) & (number < local(row[r].keys.end));
  }
};
