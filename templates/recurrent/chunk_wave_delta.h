// GPU vocabulary of the chunked recurrence on matrix instructions of a wave: a chunk's system of the delta rule.
//
// Row t of the system is u_t + sum over s < t of beta_t e^(c_t - c_s) (k_t . k_s) u_s = ...: 1 on the diagonal, 0 above it. Its two blocks of
// 16 x 16 on the diagonal are inverted in f32, row by row, a column a lane. With them and the block below each wave solves its own columns:
//   u of the first 16 tokens = first inverse (their right sides)
//   u of the others          = second inverse (their right sides - block below (u of the first))
// on matrix instructions: a number is three bf16, which have the digits and the range of f32.
#pragma once
#include "recurrent/chunk_wave_pairs.h"

using Float = Pieces<bfloat16, 3>;
constexpr int DIAGONAL_PITCH = 17;

// A square of a chunk's pairs of tokens in shared memory, three pieces a number: [piece][row][column].
struct FloatSquare {
  char* memory;
  static constexpr int PIECE = CHUNK * TOKEN_PITCH, BYTES = 3 * PIECE;

  void put(int row, int column, float x) const {
#pragma unroll
    for (int piece = 0; piece < 3; ++piece) {
      const bfloat16 rounded = from_float<bfloat16>(x);
      reinterpret_cast<bfloat16*>(memory + piece * PIECE + row * TOKEN_PITCH)[column] = rounded;
      x -= to_float(rounded);
    }
  }
  // A block of 16 x 16.
  Float load(int row, int column) const {
    Float x;
#pragma unroll
    for (int piece = 0; piece < 3; ++piece)
      x.at[piece] = load_operand(shared_pointer(memory) + piece * PIECE + 16 * row * TOKEN_PITCH + 32 * column, TOKEN_PITCH);
    return x;
  }
};

// In shared memory: the blocks on the diagonal; then the inverses on the diagonal and the block below, [t][s]. BACK: of the transposed system,
// [s][t].
struct Solver {
  char* memory;

  static constexpr int BLOCKS = 4 * TILES * 16 * DIAGONAL_PITCH, BYTES = BLOCKS + FloatSquare::BYTES;

  float* diagonal(int block) const { return reinterpret_cast<float*>(memory) + block * 16 * DIAGONAL_PITCH; }
  template <bool BACK = false> void put_pieces(int t, int s, float x) const { FloatSquare{memory + BLOCKS}.put(BACK ? s : t, BACK ? t : s, x); }
  // A block of the system, [16 s][16 t]: a lane has those of one t.
  template <bool BACK = false> void put(int block, const Sums& x) const {
    const int row = block_row(block), column = block_column(block), t = matrix_column();
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int s = matrix_row(i);
      if (row != column) put_pieces<BACK>(16 * row + t, 16 * column + s, x.at[i]);
      else diagonal(row)[t * DIAGONAL_PITCH + s] = x.at[i];
    }
  }
  // By the block's first warp: a half of it inverts a block on the diagonal, of which only what is below the diagonal is read.
  template <bool BACK = false> void invert() const {
    if (warp() != 0) return;
    int block = lane() / 16, column = lane() % 16;
    hold(block), hold(column);
    const float* system = diagonal(block);
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      part();
      x[i] = i == column ? 1 : 0;
#pragma unroll
      for (int l = 0; l < i; ++l) x[i] -= system[i * DIAGONAL_PITCH + l] * x[l];
      put_pieces<BACK>(16 * block + i, 16 * block + column, x[i]);
    }
  }
  Float load(int row, int column) const { return FloatSquare{memory + BLOCKS}.load(row, column); }
  // left right, without products below the last digits.
  static Sums product(const Float& left, const Float& right) {
    Sums sums = {};
#pragma unroll
    for (int order = 2; order >= 0; --order)
#pragma unroll
      for (int piece = 0; piece <= order; ++piece) multiply<bfloat16>(sums, left.at[piece], right.at[order - piece]);
    return sums;
  }
  // Right sides, [token][column], become what the tokens write.
  void solve(Sums (&x)[TILES]) const {
    x[0] = product(load(0, 0), Float(x[0]));
    hold(x[0]);
    part();
    const Sums below = product(load(1, 0), Float(x[0]));
#pragma unroll
    for (int i = 0; i < SUMS; ++i) x[1].at[i] -= below.at[i];
    hold(x[1]);
    part();
    x[1] = product(load(1, 1), Float(x[1]));
    hold(x[1]);
  }
  // The same of the transposed system.
  void solve_back(Sums (&x)[TILES]) const {
    part();
    x[1] = product(load(1, 1), Float(x[1]));
    hold(x[1]);
    part();
    const Sums above = product(load(0, 1), Float(x[1]));
#pragma unroll
    for (int i = 0; i < SUMS; ++i) x[0].at[i] -= above.at[i];
    hold(x[0]);
    part();
    x[0] = product(load(0, 0), Float(x[0]));
    hold(x[0]);
  }
};
