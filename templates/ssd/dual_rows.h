// CPU vocabulary of ssd: steps, states whose rows are features of x, and out with D x.
#pragma once
#include "device/number/math.h"
#include "recurrent/recurrent_rows.h"

// log(1 + e^z), without overflow and with all its digits: log1p(e) is e log(w) / (w - 1), w = 1 + e as rounded.
static inline float softplus_of(float z) {
  const float e = exp2_of(splat(-(z < 0 ? -z : z) * LOG2_E))[0], w = 1 + e;
  const float log1p = w == 1 ? e : log_of(splat(w))[0] * (e / (w - 1));
  return (z > 0 ? z : 0) + log1p;
}

// Its derivative.
static inline float sigmoid_of(float z) {
  const float e = exp2_of(splat(-(z < 0 ? -z : z) * LOG2_E))[0];
  return (z < 0 ? e : 1) / (1 + e);
}

// A head's steps: factors of Bm's rows, and times `rate` the log gates.
struct Steps {
  Numbers dt;
  float bias, rate;
  bool softplus;

  float before_softplus(int64_t token) const { return dt.at(token) + bias; }
  float at(int64_t token) const { return softplus ? softplus_of(before_softplus(token)) : before_softplus(token); }
  float slope(int64_t token) const { return softplus ? sigmoid_of(before_softplus(token)) : 1; }
};

static inline float number_of_head(const View& view, int64_t type, int64_t head) {
  return is_given(view) ? number_at(view.data, type, head) : 0;
}

// As State, of a state in memory [P, N]: its rows are what State has as columns.
struct DualState {
  float* data;  // null: 0
  int64_t stride, count;

  DualState(const View& view, int64_t sequence, int64_t head, int64_t start, int64_t count)
      : data(nullptr), stride(view.strides[2]), count(count) {
    if (is_given(view)) data = static_cast<float*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + start * stride;
  }
  template <int64_t WIDTH, int64_t PANEL>
  void load(float* to, int64_t keys) const {
    for (int64_t x = 0; x < WIDTH; x += LANES)
      for (int64_t i = 0; i < keys; i += LANES) {
        Floats rows[LANES];
#pragma GCC unroll 16
        for (int r = 0; r < LANES; ++r) rows[r] = data && x + r < count ? load_some(data + (x + r) * stride + i, keys - i) : Floats{};
        transpose(rows);
        for (int j = 0; j < LANES && i + j < keys; ++j) store_floats(to + (x / PANEL * keys + i + j) * PANEL + x % PANEL, rows[j]);
      }
  }
  template <int64_t WIDTH, int64_t PANEL>
  void store(const float* from, int64_t keys) const {
    for (int64_t x = 0; x < WIDTH && x < count; x += LANES)
      for (int64_t i = 0; i < keys; i += LANES) {
        Floats rows[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; ++j)
          rows[j] = i + j < keys ? load_floats(from + (x / PANEL * keys + i + j) * PANEL + x % PANEL) : Floats{};
        transpose(rows);
        for (int r = 0; r < LANES && x + r < count; ++r) store_some(data + (x + r) * stride + i, rows[r], keys - i);
      }
  }
};

// As OutRows, with `skip` times x added.
struct SkipRows {
  OutRows out;
  Rows x;
  bool skips;
  float skip;

  void store(int64_t token, int64_t i, Floats y) const { out.store(token, i, skips ? y + skip * x.row(token).load(i) : y); }
  void clear(int64_t tokens) const { out.clear(tokens); }
};
