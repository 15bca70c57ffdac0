// GPU vocabulary of the chunked recurrence with gates of values on matrix instructions of a warp (mma.sync): products of a step's pairs, and a
// state that goes on by a step. Part of a template, like chunk_block.h, which comes before.
#pragma once
#include "recurrent/chunk_block.h"
#include "recurrent/chunk_value_steps.h"

// Products of a chunk's queries and keys, of each step: within its halves; of queries of the later with keys of the earlier half, as operand B.
struct ValuePairs {
  float own[CHUNK / STEP][2][HALF][HALF];
  uint32_t across[CHUNK / STEP][WARP];
$if by_steps and narrow
  RowUnits units;  // of the rows of which products across are
$end
};

static inline void put_value_pairs(const KeyTile& queries, const KeyTile& keys, const Norms& norms, float scale, ValuePairs& to) {
#pragma unroll 1
  for (int step = warp(); step < CHUNK / STEP; step += WARPS) {
    float sums[2][2][4] = {};  // of even and of odd slices: fewer products wait for others
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      queries.load_a(a, STEP * step, 16 * k);
      keys.load_b(b, STEP * step, 16 * k);
      multiply_two(sums[k % 2][0], sums[k % 2][1], a, b);
    }
    const int row = lane() / 4, column = lane() % 4 * 2;
    const auto product = [&](int t, int s, int i) {  // of halves t and s
      const float norm = NORMED ? norms.q[STEP * step + HALF * t + row] * norms.k[STEP * step + HALF * s + column + i] : 1;
      return (sums[0][s][2 * t + i] + sums[1][s][2 * t + i]) * (norm * scale);
    };
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 2; ++i) to.own[step][half][row][column + i] = product(half, half, i);
    to.across[step][lane()] = pack_pair<Element>(product(1, 0, 0), product(1, 0, 1));
  }
}

// What lanes of fragments have of a warp's columns by a step's tokens.
static inline void get_columns(const ColumnRows& from, Sums<1>& x) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Pack<float, 2> pair = load_pack<2>(&from.at[lane() / 4 + 8 * h][HALF * n + lane() % 4 * 2]);
      x[n][2 * h] = pair.at[0], x[n][2 * h + 1] = pair.at[1];
    }
}

static inline void put_columns(ColumnRows& to, const Sums<1>& x) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      store_pack(&to.at[lane() / 4 + 8 * h][HALF * n + lane() % 4 * 2], Pack<float, 2>{{x[n][2 * h], x[n][2 * h + 1]}});
}

// Factors of the columns of a fragment's rows, lane() / 4 and 8 more.
struct ColumnFactors {
  float halves[2][2];         // what each half leaves of a state, by half
  float base[2], rest[2];     // what the step leaves of a state

  // log: the sum of the gates of the lane's half; before: what they leave.
  ColumnFactors(float log, float before) {
    const SplitExp step = split_exp((log + shuffle_xor(log, 16)) * LN_2);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int column = lane() / 4 + 8 * h;
      halves[0][h] = shuffle(before, column), halves[1][h] = shuffle(before, column + 16);
      base[h] = shuffle(step.base, column), rest[h] = shuffle(step.rest, column);
    }
  }
};

// Weighs the lane's half (weigh_half()).
static inline ColumnFactors weigh(const float (&gates)[HALF], const float (*pairs)[HALF], const Element* values, int pitch, Weighed& to) {
  const auto [before, log] = weigh_half(gates, pairs, values, pitch, to);
  return ColumnFactors(log, before);
}

// What a lane has of numbers as PIECES operands, of which each but the first is what rounding took from those before.
template <int PIECES> static inline void to_pieces(uint32_t (&to)[PIECES][4], float (&first)[4], float (&second)[4]) {
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece) {
    to_operand(to[piece], first, second);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* x = (i < 2 ? first : second) + i % 2 * 2;
      x[0] -= low_of(to[piece][i]), x[1] -= high_of(to[piece][i]);
    }
  }
}

// sums = state rows^T: of values by the step's tokens; the state is PIECES elements a number. `unit` is multiplied in beforehand.
template <int PIECES = 1> static inline void see(Sums<1>& sums, const State& state, const KeyTile& rows, int row, float unit) {
  float parts[2][2][4] = {};
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    uint32_t a[PIECES][4], b[4];
    float first[4], second[4];
    rows.load_b(b, row, 16 * k);
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = state[2 * k][i] * unit, second[i] = state[2 * k + 1][i] * unit;
    to_pieces(a, first, second);
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) multiply_two(parts[k % 2][0], parts[k % 2][1], a[piece], b);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = parts[0][n][i] + parts[1][n][i];
}

// sums += what the later half reads of the earlier, at the later half's first token; kept: of the earlier half's tokens.
static inline void add_across(float (&sums)[4], const float (&kept)[4], uint32_t pairs) {
  const uint32_t a[4] = {pack_pair<Element>(kept[0], kept[1]), pack_pair<Element>(kept[2], kept[3]), 0, 0};
  mma_16x8x16<Element>(sums, a, pairs, 0);
}

// state = (base + rest) state + written keys, of a step, in units of 1 / inverse. Its sums begin at 0: matrix instructions round down.
template <int PIECES>
static inline void take_in_step(State& state, const ColumnFactors& factors, const uint32_t (&written)[PIECES][4], const KeyTile& keys, int row,
                                float inverse) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    uint32_t b[4];
    float sums[2][4] = {};
    keys.load_b_transposed(b, row, 16 * k);
#pragma unroll
    for (int piece = PIECES - 1; piece >= 0; --piece) multiply_two(sums[0], sums[1], written[piece], b);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * factors.base[i / 2] + (x * factors.rest[i / 2] + sums[n][i] * inverse);
      }
  }
}

static inline void store_step(const OutRows& out, const Sums<1>& sums, int token, int count) {
  Element* at = out.first + static_cast<int64_t>(token + lane() / 4) * out.stride + lane() % 4 * 2;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t pair = transpose_matrix(pack_pair<Element>(sums[n][2 * h], sums[n][2 * h + 1]));
      if (token + 8 * n + lane() / 4 < count && 8 * h + lane() % 4 * 2 < out.columns) *reinterpret_cast<uint32_t*>(at + 8 * h) = pair;
    }
    at += 8 * out.stride;
  }
}
