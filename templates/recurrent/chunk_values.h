// GPU vocabulary of the chunked recurrence with gates of values: 16 tokens at a time, a step of a chunk. Part of a template, like
// chunk_block.h, which comes before. A gate is a number of a token and a column of the state: so a warp, which keeps 16 columns, weighs what
// its tokens write. Lane l does so for column l % 16 and tokens 8 (l / 16) up to 8 (l / 16) + 8 of a step, which its half of the warp has.
// Weights are products of what single gates leave, so that no exponent is a difference.
#pragma once
#include "recurrent/chunk_block.h"

constexpr int STEP = 16, HALF = 8;

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

// A column's log gates, in the order in which tokens are met, as they lie in memory.
struct ValueGates {
  const char* data;  // null: past the last column
  int type, stride;  // type: as number_at() has it; bytes

  ValueGates(const View& view, int64_t type, const Tokens& tokens, int64_t head, int64_t column, bool reverse)
      : data(nullptr), type(static_cast<int>(type)), stride(0) {
    if (column >= view.shape[3]) return;
    const int64_t first = reverse ? tokens.end - 1 : tokens.first, bytes = type == 0 ? 4 : 2;
    data = static_cast<const char*>(view.data) +
           (tokens.row * view.strides[0] + first * view.strides[1] + head * view.strides[2] + column) * bytes;
    stride = static_cast<int>((reverse ? -view.strides[1] : view.strides[1]) * bytes);
  }
  // Those of the lane's half of the step from `token` on; 0 past the last.
  void load(int token, int count, uint32_t (&raw)[HALF]) const {
    token += lane() / STEP * HALF;
    const char* from = data + static_cast<int64_t>(token) * stride;
    const int left = data ? count - token : 0;
    if (type == 0) load_of<uint32_t>(from, left, raw);
    else load_of<uint16_t>(from, left, raw);
  }
  // The step's log gates in units of log 2, with those of tokens (by_steps: those are with gates of keys).
  void read(const uint32_t (&raw)[HALF]${by_steps ? '' : ', const float* of_tokens'}, float (&to)[HALF]) const {
#pragma unroll
    for (int i = 0; i < HALF; ++i) to[i] = number_of<float>(raw[i]);
    if (type == 1) {
#pragma unroll
      for (int i = 0; i < HALF; ++i) to[i] = number_of<half>(raw[i]);
    } else if (type == 2) {
#pragma unroll
      for (int i = 0; i < HALF; ++i) to[i] = number_of<bfloat16>(raw[i]);
    }
$if by_steps
#pragma unroll
    for (int i = 0; i < HALF; ++i) to[i] = bounded_gate(to[i]);
$else
#pragma unroll
    for (int i = 0; i < HALF; i += 4) {
      const Pack<float, 4> more = load_pack<4>(of_tokens + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) to[i + j] = bounded_gate(to[i + j] + more.at[j]);
    }
$end
  }

 private:
  template <class Bits> void load_of(const char* from, int left, uint32_t (&raw)[HALF]) const {
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
      raw[i] = i < left ? *reinterpret_cast<const Bits*>(from) : 0;
      from += stride;
    }
  }
};

// A warp's columns by a step's tokens, in shared memory: from lanes that have a column to those of fragments.
struct ColumnRows {
  static constexpr int PITCH = STEP + 4;
  float at[16][PITCH];

  void put(const float (&x)[HALF]) {
    float* to = &at[lane() % 16][lane() / 16 * HALF];
#pragma unroll
    for (int i = 0; i < HALF; i += 4) store_pack(to + i, Pack<float, 4>{{x[i], x[i + 1], x[i + 2], x[i + 3]}});
  }
  void get(Sums<1>& x) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Pack<float, 2> pair = load_pack<2>(&at[lane() / 4 + 8 * h][HALF * n + lane() % 4 * 2]);
        x[n][2 * h] = pair.at[0], x[n][2 * h + 1] = pair.at[1];
      }
  }
};

// What a step's gates and pairs make, by columns.
struct Weighed {
  ColumnRows left;   // what is left at a token of what was before its half
  ColumnRows kept;   // what is left of a token's write after its half
  ColumnRows sums;   // what a token reads of its half
};
// Factors of the columns of a fragment's rows, lane() / 4 and 8 more.
struct ColumnFactors {
  float halves[2][2];         // what each half leaves of a state, by half
  float base[2], rest[2];     // what the step leaves of a state
};

// Weighs the lane's half. pairs: of the half; values: the lane's column from the half's first token on; gates: in units of log 2.
static inline ColumnFactors weigh(const float (&gates)[HALF], const float (*pairs)[HALF], const Element* values, int pitch, Weighed& to) {
  float left[HALF], kept[HALF], sums[HALF], before = 1, all = 0;
#pragma unroll
  for (int t = 0; t < HALF; ++t) {
    const float gate = exp2_of(gates[t]);
    all += gates[t];
    left[t] = before *= gate;
#pragma unroll
    for (int s = 0; s < t; ++s) kept[s] *= gate;
    kept[t] = to_float(values[t * pitch]);
    sums[t] = 0;
#pragma unroll
    for (int s = 0; s <= t; s += 4) {
      const Pack<float, 4> pair = load_pack<4>(&pairs[t][s]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (s + i <= t) sums[t] += pair.at[i] * kept[s + i];
    }
  }
  to.left.put(left), to.kept.put(kept), to.sums.put(sums);
  const SplitExp step = split_exp((all + shuffle_xor(all, 16)) * LN_2);
  ColumnFactors factors;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int column = lane() / 4 + 8 * h;
    factors.halves[0][h] = shuffle(before, column), factors.halves[1][h] = shuffle(before, column + 16);
    factors.base[h] = shuffle(step.base, column), factors.rest[h] = shuffle(step.rest, column);
  }
  return factors;
}

// sums = state rows^T: of values by the step's tokens. `unit` is multiplied in beforehand.
static inline void see(Sums<1>& sums, const State& state, const KeyTile& rows, int row, float unit) {
  float parts[2][2][4] = {};
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    uint32_t a[4], b[4];
    float first[4], second[4];
    rows.load_b(b, row, 16 * k);
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = state[2 * k][i] * unit, second[i] = state[2 * k + 1][i] * unit;
    to_operand(a, first, second);
    multiply_two(parts[k % 2][0], parts[k % 2][1], a, b);
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

// state = (base + rest) state + (written + what rounding took from it) keys, of a step. Its sums begin at 0: matrix instructions round down.
static inline void take_in_step(State& state, const ColumnFactors& factors, const uint32_t (&written)[4], const uint32_t (&written_rest)[4],
                                const KeyTile& keys, int row) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    uint32_t b[4];
    float sums[2][4] = {};
    keys.load_b_transposed(b, row, 16 * k);
    multiply_two(sums[0], sums[1], written_rest, b);
    multiply_two(sums[0], sums[1], written, b);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * factors.base[i / 2] + (x * factors.rest[i / 2] + sums[n][i]);
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
