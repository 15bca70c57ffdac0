// GPU vocabulary: tokens, rows and states of a recurrence, and log gates' factors.
#pragma once
#include "device/gpu.h"

// e^x = base + rest: near 0 it is 1 and e^x - 1, which has all its digits; elsewhere 0 and e^x. So a state that decays a little in each of
// thousands of steps keeps its digits. -inf gives 0 and 0.
struct SplitExp {
  float base, rest;
  float of(float x) const { return x * base + x * rest; }
};

static inline SplitExp split_exp(float x) {
  if (!(x > -0.7f && x < 0.7f)) return {0, exp2_of(x * LOG2_E)};
  float p = 1.0f / 9;  // x (1 + x / 2 (1 + x / 3 (...)))
  p = 1 + x * p;
#pragma unroll
  for (int i = 8; i > 1; --i) p = 1 + x * (1.0f / i) * p;
  return {1, x * p};
}

// A number of a type known at run time: 0 f32, 1 f16, 2 bf16.
static inline float number_at(const void* data, int64_t type, int64_t at) {
  if (type == 0) return static_cast<const float*>(data)[at];
  if (type == 1) return to_float(static_cast<const half*>(data)[at]);
  return to_float(static_cast<const bfloat16*>(data)[at]);
}

// What every token's log gate of a head has in common. num_layers 0: g_gamma alone.
static inline float gamma_of(const View& g_gamma, int64_t type, int64_t head, int64_t heads, int64_t layer_idx, int64_t num_layers) {
  const float gamma = is_given(g_gamma) ? number_at(g_gamma.data, type, head) : 0;
  if (num_layers == 0) return gamma;
  return gamma - static_cast<float>(8 * head * (num_layers - layer_idx)) / static_cast<float>(heads * num_layers);
}

// Where a sequence's tokens are: in row `row` of a batch, from token `first` on. Packed, the sequence after the last has the tokens after
// all of them.
struct Tokens {
  int64_t row, first, end;
  Tokens(const int32_t* cum_seqlens, int64_t sequences, int64_t sequence, int64_t length) {
    row = cum_seqlens ? 0 : sequence;
    first = cum_seqlens ? cum_seqlens[sequence] : 0;
    end = cum_seqlens && sequence < sequences ? cum_seqlens[sequence + 1] : length;
  }
};

template <class T, int N> static inline void load_row(const T* from, int first, int step, int end, float (&x)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (first + j * step < end) x[j] = to_float(from[j * step]);
}

// Numbers as they lie in memory, made floats when they are used: until then their loads need not have come.
static inline uint32_t raw_of(const float* from) { return __builtin_bit_cast(uint32_t, *from); }
template <class T> static inline uint32_t raw_of(const T* from) { return *reinterpret_cast<const uint16_t*>(from); }
template <class T> static inline float number_of(uint32_t raw) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(float, raw);
  } else {
    return to_float(__builtin_bit_cast(T, static_cast<uint16_t>(raw)));
  }
}
template <class T, int N> static inline void load_raw(const T* from, int first, int step, int end, uint32_t (&x)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (first + j * step < end) x[j] = raw_of(from + j * step);
}

// A head of a tensor [batch, tokens, heads, features], which may have fewer heads than there are.
template <class T>
struct Numbers {
  const T* data;
  int64_t stride;
  Numbers() = default;
  Numbers(const View& view, const Tokens& tokens, int64_t head, int64_t heads, int64_t start) : stride(view.strides[1]) {
    int64_t own = head;
    if (view.shape[2] != heads) own = static_cast<uint32_t>(head) / (static_cast<uint32_t>(heads) / static_cast<uint32_t>(view.shape[2]));
    data = static_cast<const T*>(view.data) + tokens.row * view.strides[0] + tokens.first * stride + own * view.strides[2] + start;
  }
  float at(int64_t token, int64_t i) const { return to_float(data[token * stride + i]); }
};

// The same of [batch, tokens, heads, features] or [batch, tokens, heads], of any type; 0 if it is not given.
struct AnyNumbers {
  const void* data;
  int64_t type, stride, base;
  AnyNumbers() = default;
  AnyNumbers(const View& view, int64_t type, const Tokens& tokens, int64_t head, int64_t start)
      : data(is_given(view) ? view.data : nullptr), type(type), stride(0), base(0) {
    if (!data) return;
    stride = view.strides[1];
    base = tokens.row * view.strides[0] + tokens.first * stride + head * (view.rank > 3 ? view.strides[2] : 1) + start;
  }
  float at(int64_t token, int64_t i) const { return data ? number_at(data, type, base + token * stride + i) : 0; }

  // x[j]: number first + j * step, where it is below `end`; else x[j] stays. One type's loads are all on their way before the first is used.
  template <int N> void row(int64_t token, int first, int step, int end, float (&x)[N]) const {
    if (!data) return;
    const int64_t from = base + token * stride + first;
    if (type == 0) return load_row(static_cast<const float*>(data) + from, first, step, end, x);
    if (type == 1) return load_row(static_cast<const half*>(data) + from, first, step, end, x);
    load_row(static_cast<const bfloat16*>(data) + from, first, step, end, x);
  }
};

// A lane's columns of one head's state of T in memory, f32 in registers: rows part, part + PARTS, ...
template <class T>
struct StateColumns {
  T* data;  // null: 0
  int64_t stride;
  StateColumns(const View& view, int64_t sequence, int64_t head, int64_t column) : data(nullptr), stride(0) {
    if (!is_given(view)) return;
    stride = view.strides[2];
    data = static_cast<T*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + column;
  }

  // whole_packs: every row's columns are whole and aligned packs.
  template <int PARTS, int KEYS, int VEC>
  void load(float (&state)[KEYS][VEC], int keys, int part, int columns, bool whole_packs) const {
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const int64_t i = j * PARTS + part;
      Pack<T, VEC> row = {};
      if (data && i < keys) {
        if (whole_packs && columns == VEC) {
          row = load_pack<VEC>(data + i * stride);
        } else {
#pragma unroll
          for (int c = 0; c < VEC; ++c)
            if (c < columns) row.at[c] = data[i * stride + c];
        }
      }
#pragma unroll
      for (int c = 0; c < VEC; ++c) state[j][c] = to_float(row.at[c]);
    }
  }

  template <int PARTS, int KEYS, int VEC>
  void store(const float (&state)[KEYS][VEC], int keys, int part, int columns, bool whole_packs) const {
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const int64_t i = j * PARTS + part;
      if (i >= keys) continue;
      if (whole_packs && columns == VEC) {
        Pack<T, VEC> row;
#pragma unroll
        for (int c = 0; c < VEC; ++c) row.at[c] = from_float<T>(state[j][c]);
        store_pack(data + i * stride, row);
      } else {
#pragma unroll
        for (int c = 0; c < VEC; ++c)
          if (c < columns) data[i * stride + c] = from_float<T>(state[j][c]);
      }
    }
  }
};
