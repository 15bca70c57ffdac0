// GPU vocabulary of the chunked recurrence with gates of values: 16 tokens at a time, a step of a chunk. Part of a template. A gate is a number
// of a token and a column of the state: so a warp, which keeps 16 columns, weighs what its tokens write. Lane l does so for column l % 16 and
// tokens 8 (l / 16) up to 8 (l / 16) + 8 of a step, which its half of the warp has. Weights are products of what single gates leave, so that
// no exponent is a difference.
#pragma once
#include "recurrent/chunk_gates.h"

constexpr int STEP = 16, HALF = 8;

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

// A warp's columns by a step's tokens, in shared memory: from lanes that have a column to those of matrices.
struct ColumnRows {
  static constexpr int PITCH = STEP + 4;
  float at[16][PITCH];

  void put(const float (&x)[HALF]) {
    float* to = &at[lane() % 16][lane() / 16 * HALF];
#pragma unroll
    for (int i = 0; i < HALF; i += 4) store_pack(to + i, Pack<float, 4>{{x[i], x[i + 1], x[i + 2], x[i + 3]}});
  }
};

// What a step's gates and pairs make, by columns.
struct Weighed {
  ColumnRows left;   // what is left at a token of what was before its half
  ColumnRows kept;   // what is left of a token's write after its half
  ColumnRows sums;   // what a token reads of its half
};
// What the gates of a lane's half leave of a state, and their sum.
struct HalfLeft {
  float factor, log;
};

// Weighs the lane's half. pairs: of the half; values: the lane's column from the half's first token on, `pitch` elements from token to token;
// gates: in units of log 2.
static inline HalfLeft weigh_half(const float (&gates)[HALF], const float (*pairs)[HALF], const Element* values, int pitch, Weighed& to) {
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
  return {before, all};
}
