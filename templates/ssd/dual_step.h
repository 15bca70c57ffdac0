// GPU vocabulary of ssd: steps, and states whose rows are features of x.
#pragma once
#include "recurrent/recurrent_step.h"

// log(1 + e^z), without overflow and with all its digits: log1p(e) is e log(w) / (w - 1), w = 1 + e as rounded.
static inline float softplus_of(float z) {
  const float e = exp2_of(-(z < 0 ? -z : z) * LOG2_E), w = 1 + e;
  const float log1p = w == 1 ? e : log_of(w) * (e / (w - 1));
  return (z > 0 ? z : 0) + log1p;
}

// Its derivative.
static inline float sigmoid_of(float z) {
  const float e = exp2_of(-(z < 0 ? -z : z) * LOG2_E);
  return (z < 0 ? e : 1) / (1 + e);
}

static inline float number_of_head(const View& view, int64_t type, int64_t head) {
  return is_given(view) ? number_at(view.data, type, head) : 0;
}

// A head's steps: factors of Bm's rows, and times `rate` the log gates.
struct Steps {
  AnyNumbers dt;
  float bias, rate;
  bool softplus;

  float before_softplus(int64_t token) const { return dt.at(token, 0) + bias; }
  float at(int64_t token) const {
    const float z = before_softplus(token);
    return softplus ? softplus_of(z) : z;
  }
  float slope(int64_t token) const { return softplus ? sigmoid_of(before_softplus(token)) : 1; }
};

// As StateColumns, of a state in memory [P, N]: its rows are what StateColumns has as columns.
template <class T>
struct DualColumns {
  T* data;  // null: 0
  int64_t stride;
  DualColumns(const View& view, int64_t sequence, int64_t head, int64_t column) : data(nullptr), stride(0) {
    if (!is_given(view)) return;
    stride = view.strides[2];
    data = static_cast<T*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + column * stride;
  }

  template <int PARTS, int KEYS, int VEC>
  void load(float (&state)[KEYS][VEC], int keys, int part, int columns, bool) const {
#pragma unroll
    for (int j = 0; j < KEYS; ++j)
#pragma unroll
      for (int c = 0; c < VEC; ++c) {
        const int i = j * PARTS + part;
        state[j][c] = data && i < keys && c < columns ? to_float(data[c * stride + i]) : 0;
      }
  }

  template <int PARTS, int KEYS, int VEC>
  void store(const float (&state)[KEYS][VEC], int keys, int part, int columns, bool) const {
#pragma unroll
    for (int j = 0; j < KEYS; ++j)
#pragma unroll
      for (int c = 0; c < VEC; ++c) {
        const int i = j * PARTS + part;
        if (i < keys && c < columns) data[c * stride + i] = from_float<T>(state[j][c]);
      }
  }
};
