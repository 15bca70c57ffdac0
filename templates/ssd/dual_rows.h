// CPU vocabulary of ssd: steps, states whose rows are features of x, and out with D x.
#pragma once
#include "device/number/math.h"
#include "recurrent/recurrent_rows.h"

// log(1 + e^z), without overflow and with all its digits: log1p(e) is e log(w) / (w - 1), w = 1 + e as rounded.
static inline Floats softplus_of(Floats z) {
  const Floats e = exp2_of((z < Floats{} ? z : -z) * LOG2_E), w = 1.0f + e;
  const Floats log1p = w == splat(1.0f) ? e : log_of(w) * (e / (w - 1.0f));
  return (z > Floats{} ? z : Floats{}) + log1p;
}
static inline float softplus_of(float z) { return softplus_of(splat(z))[0]; }

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
  // Of `count` tokens from `first` on, zeros after them up to `padded`, whole vectors.
  void load(int64_t first, int64_t count, int64_t padded, float* to) const {
    for (int64_t t = 0; t < padded; ++t) to[t] = t < count ? before_softplus(first + t) : 0;
    for (int64_t t = 0; softplus && t < count; t += LANES) store_floats(to + t, softplus_of(load_floats(to + t)));
    for (int64_t t = count; softplus && t < padded; ++t) to[t] = 0;
  }
};

static inline float number_of_head(const View& view, int64_t type, int64_t head) {
  return is_given(view) ? number_at(view.data, type, head) : 0;
}

// As State, of a state in memory [P, N]: its rows are what State has as columns.
template <class T>
struct DualState {
  T* data;  // null: 0
  int64_t stride, count;

  DualState(const View& view, int64_t sequence, int64_t head, int64_t start, int64_t count)
      : data(nullptr), stride(view.strides[2]), count(count) {
    if (is_given(view)) data = static_cast<T*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + start * stride;
  }
  // To and from scratch: row i of the `width` features' state lies at at(x, i), x a multiple of LANES.
  template <class At>
  void load_rows(int64_t width, int64_t keys, const At& at) const {
    for (int64_t x = 0; x < width; x += LANES)
      for (int64_t i = 0; i < keys; i += LANES) {
        Floats rows[LANES];
#pragma GCC unroll 16
        for (int r = 0; r < LANES; ++r) rows[r] = data && x + r < count ? load_some(data + (x + r) * stride + i, keys - i) : Floats{};
        transpose(rows);
        for (int j = 0; j < LANES && i + j < keys; ++j) store_floats(at(x, i + j), rows[j]);
      }
  }
  template <class At>
  void store_rows(int64_t width, int64_t keys, const At& at) const {
    for (int64_t x = 0; x < width && x < count; x += LANES)
      for (int64_t i = 0; i < keys; i += LANES) {
        Floats rows[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; ++j) rows[j] = i + j < keys ? load_floats(at(x, i + j)) : Floats{};
        transpose(rows);
        for (int r = 0; r < LANES && x + r < count; ++r) store_some(data + (x + r) * stride + i, rows[r], keys - i);
      }
  }
  // Panels [WIDTH / PANEL][keys][PANEL].
  template <int64_t WIDTH, int64_t PANEL>
  void load(float* to, int64_t keys) const {
    load_rows(WIDTH, keys, [&](int64_t x, int64_t i) { return to + (x / PANEL * keys + i) * PANEL + x % PANEL; });
  }
  template <int64_t WIDTH, int64_t PANEL>
  void store(const float* from, int64_t keys) const {
    store_rows(WIDTH, keys, [&](int64_t x, int64_t i) { return from + (x / PANEL * keys + i) * PANEL + x % PANEL; });
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
