// CPU vocabulary: a sequence's rows of q, k, v, gates, out and state, of types known at run time: 0 f32, 1 f16, 2 bf16.
#pragma once
#include "device/number/narrow.h"
#include "device/number/roots.h"
#include "device/number/vector.h"

static inline float sum_of(Floats x) {
  float part[LANES];
  store_floats(part, x);
#pragma GCC unroll 8
  for (int half = LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  return part[0];
}

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

// `count` numbers one after another.
struct Row {
  const void* data;  // null: all 0
  int64_t type, count;

  // The vector from number i on; 0 past the last.
  Floats load(int64_t i) const {
    if (!data) return Floats{};
    if (type == 0) return load_some(static_cast<const float*>(data) + i, count - i);
    if (type == 1) return load_some(static_cast<const half*>(data) + i, count - i);
    return load_some(static_cast<const bfloat16*>(data) + i, count - i);
  }
};

// Rows of whole vectors, times `scale`, first divided by the root of the sum of their squares and 1e-6 if `l2_norm`.
static inline void load_scaled(const Row& row, float* to, float scale, bool l2_norm) {
  Floats squares = {};
  for (int64_t i = 0; i < row.count; i += LANES) {
    const Floats x = row.load(i);
    squares += x * x;
    store_floats(to + i, x);
  }
  const float factor = l2_norm ? scale * rsqrt_of(sum_of(squares) + 1e-6f) : scale;
  for (int64_t i = 0; i < row.count; i += LANES) store_floats(to + i, load_floats(to + i) * factor);
}

// Where a sequence's tokens are: in row `row` of a batch, from token `first` on.
struct Tokens {
  int64_t row = 0, first = 0, end = 0;

  // Sequence number `sequence`; packed, the one after the last has the tokens after all of them.
  Tokens(const int32_t* cum_seqlens, int64_t sequences, int64_t sequence, int64_t length) {
    row = cum_seqlens ? 0 : sequence;
    first = cum_seqlens ? cum_seqlens[sequence] : 0;
    end = cum_seqlens && sequence < sequences ? cum_seqlens[sequence + 1] : length;
  }
  int64_t count() const { return end - first; }
};

static inline int64_t bytes_of(int64_t type) { return type == 0 ? 4 : 2; }

// A head of a tensor [batch, tokens, heads, features], which may have fewer heads than there are; features from `start` on.
struct Rows {
  const char* data;
  int64_t type, stride, count;

  Rows(const View& view, int64_t type, const Tokens& tokens, int64_t head, int64_t heads, int64_t start, int64_t count)
      : data(nullptr), type(type), stride(0), count(count) {
    if (!is_given(view)) return;
    const int64_t own = head / (heads / view.shape[2]);
    stride = view.strides[1] * bytes_of(type);
    data = static_cast<const char*>(view.data) +
           (tokens.row * view.strides[0] + tokens.first * view.strides[1] + own * view.strides[2] + start) * bytes_of(type);
  }
  Row row(int64_t token) const { return {data ? data + token * stride : nullptr, type, count}; }
};

// A head's number for each token, of a tensor [batch, tokens, heads]; 0 if it is not given.
struct Numbers {
  const char* data;
  int64_t type, stride;

  Numbers(const View& view, int64_t type, const Tokens& tokens, int64_t head) : data(nullptr), type(type), stride(0) {
    if (!is_given(view)) return;
    stride = view.strides[1] * bytes_of(type);
    data = static_cast<const char*>(view.data) + (tokens.row * view.strides[0] + tokens.first * view.strides[1] + head) * bytes_of(type);
  }
  float at(int64_t token) const { return data ? number_at(data + token * stride, type, 0) : 0; }
};

struct OutRows {
  char* data;
  int64_t type, stride, count;

  OutRows(const View& view, int64_t type, const Tokens& tokens, int64_t head, int64_t start, int64_t count)
      : type(type), stride(view.strides[1] * bytes_of(type)), count(count) {
    data = static_cast<char*>(view.data) +
           (tokens.row * view.strides[0] + tokens.first * view.strides[1] + head * view.strides[2] + start) * bytes_of(type);
  }
  void store(int64_t token, int64_t i, Floats x) const {
    char* to = data + token * stride;
    if (type == 0) return store_some(reinterpret_cast<float*>(to) + i, x, count - i);
    if (type == 1) return store_some(reinterpret_cast<half*>(to) + i, x, count - i);
    store_some(reinterpret_cast<bfloat16*>(to) + i, x, count - i);
  }
  void clear(int64_t tokens) const {
    for (int64_t t = 0; t < tokens; ++t) __builtin_memset(data + t * stride, 0, count * bytes_of(type));
  }
};

// Columns of one head's state of T in memory, f32 in panels.
template <class T>
struct State {
  T* data;  // null: 0
  int64_t stride, count;

  State(const View& view, int64_t sequence, int64_t head, int64_t start, int64_t count)
      : data(nullptr), stride(view.strides[2]), count(count) {
    if (is_given(view)) data = static_cast<T*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + start;
  }
  // To and from panels [WIDTH / PANEL][keys][PANEL].
  template <int64_t WIDTH, int64_t PANEL>
  void load(float* to, int64_t keys) const {
    for (int64_t x = 0; x < WIDTH; x += LANES)
      for (int64_t i = 0; i < keys; ++i)
        store_floats(to + (x / PANEL * keys + i) * PANEL + x % PANEL, data ? load_some(data + i * stride + x, count - x) : Floats{});
  }
  template <int64_t WIDTH, int64_t PANEL>
  void store(const float* from, int64_t keys) const {
    for (int64_t x = 0; x < WIDTH && x < count; x += LANES)
      for (int64_t i = 0; i < keys; ++i)
        store_some(data + i * stride + x, load_floats(from + (x / PANEL * keys + i) * PANEL + x % PANEL), count - x);
  }
};
