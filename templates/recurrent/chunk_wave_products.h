// GPU vocabulary of the chunked recurrence on matrix instructions of a wave: numbers as operands, and a wave's columns of a state. Part of a
// template, which has defined PARTS, elements a number, and NARROW before: numbers may be too large for an element, or, as gfx90a reads halves,
// too small.
#pragma once
#include "recurrent/chunk_wave_rows.h"

// A power of two that makes numbers up to `largest` at most 2^14, and those near it far larger than the least half.
struct Unit {
  float of = 1, inverse = 1;
  Unit() = default;
  explicit Unit(float largest) {
    if constexpr (!NARROW) return;
    const uint32_t bits = __builtin_bit_cast(uint32_t, largest) >> 23, exponent = bits < 27 ? 27 : bits > 240 ? 240 : bits;
    of = __builtin_bit_cast(float, (267 - exponent) << 23);
    inverse = __builtin_bit_cast(float, (exponent - 13) << 23);
  }
};
static inline float larger_size(float largest, float x) { return larger_of(largest, larger_of(x, -x)); }
static inline float largest_of_wave(float x) {
  for (int mask = 1; mask < 16; mask *= 2) x = larger_of(x, exchange_wave(x, mask));
  return largest_of_column(x);
}

template <int N> static inline Unit unit_of(const Sums (&x)[N]) {
  if constexpr (!NARROW) return {};
  float largest = 0;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) largest = larger_size(largest, x[n].at[i]);
  return Unit(largest_of_wave(largest));
}

static inline Sums scaled(const Sums& x, float factor) {
  Sums to;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) to.at[i] = x.at[i] * factor;
  return to;
}

// What rounding to elements T takes.
template <class T> static inline Sums rest_of(const Sums& x) {
  Sums to;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) to.at[i] = x.at[i] - to_float(from_float<T>(x.at[i]));
  return to;
}

// COUNT operands of elements T, each of which but the first is what rounding took from those before.
template <class T, int COUNT> struct Pieces {
  Operand at[COUNT];

  Pieces() = default;
  explicit Pieces(Sums x) {
#pragma unroll
    for (int piece = 0; piece < COUNT; ++piece) {
      at[piece] = operand_of<T>(x);
      x = rest_of<T>(x);
    }
  }
};
using Parts = Pieces<Element, PARTS>;

// A wave's 16 columns of a state, by keys: [16 keys][16 columns].
typedef Sums State[SLICES];

// A wave's columns of a state in memory.
struct StateMemory {
  float* data;  // null: 0
  int stride, keys;
  bool exists;  // the lane's column

  StateMemory(const View& view, int64_t sequence, int64_t head, int64_t first_column) : data(nullptr), stride(0), keys(0), exists(false) {
    if (!is_given(view)) return;
    const int64_t column = first_column + matrix_column();
    stride = static_cast<int>(view.strides[2]);
    keys = static_cast<int>(view.shape[2]);
    exists = column < view.shape[3];
    data = static_cast<float*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + column;
  }
  // Calls use(x, at) for each of the lane's numbers of a state that there are: x belongs to `*at`.
  template <class Use> void each(State& state, Use use) const {
    if (!data || !exists) return;
#pragma unroll
    for (int k = 0; k < SLICES; ++k)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int key = 16 * k + matrix_row(i);
        if (key < keys) use(state[k].at[i], data + static_cast<int64_t>(key) * stride);
      }
  }
  void load(State& state) const {
    each(state, [](float& x, const float* at) { x = *at; });
  }
  void store(State& state) const {
    each(state, [](float& x, float* at) { *at = x; });
  }
};

// sums [16 columns][16 tokens] of N tiles += state^T rows^T; the state is rounded once, times `unit`.
template <int N> static inline void add_seen(Sums (&sums)[N], const State& state, SharedPointer rows, float unit) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    const Operand a = operand_of<Element>(scaled(state[k], unit));
#pragma unroll
    for (int r = 0; r < N; ++r) {
      multiply<Element>(sums[r], a, load_operand(rows + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH));
      hold(sums[r]);
    }
  }
}

// sums [16 tokens][16 columns] of TILES tiles += rows state; the state is PARTS elements a number, times `unit`.
static inline void add_seen_precisely(Sums (&sums)[TILES], const State& state, SharedPointer rows, float unit) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums x = scaled(state[k], unit);
    Operand a[TILES];
#pragma unroll
    for (int r = 0; r < TILES; ++r) a[r] = load_operand(rows + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH);
#pragma unroll
    for (int piece = 0; piece < PARTS; ++piece) {
      const Operand b = operand_of<Element>(x);
      x = rest_of<Element>(x);
#pragma unroll
      for (int r = 0; r < TILES; ++r) {
        multiply<Element>(sums[r], a[r], b);
        hold(sums[r]);
      }
    }
  }
}

// state = (base + rest) state + keys^T written; `keys` is transposed, `written` [token][column] in units of 1 / inverse. Sums of a chunk begin at
// 0: matrix instructions may round down.
template <int N>
static inline void take_in(State& state, float base, float rest, const Parts (&written)[N], SharedPointer keys, float inverse) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums sums = {}, least = {};
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const Operand a = load_operand(keys + 16 * k * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
      multiply<Element>(sums, a, written[c].at[0]);
#pragma unroll
      for (int piece = 1; piece < PARTS; ++piece) multiply<Element>(least, a, written[c].at[piece]);
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      float& x = state[k].at[i];
      x = x * base + (x * rest + (sums.at[i] + least.at[i]) * inverse);
    }
  }
}

// A wave's columns of a chunk's values, [token][column], from the transposed tile in shared memory.
static inline void load_values(Sums (&to)[TILES], const char* tile) {
  const Element* row = reinterpret_cast<const Element*>(tile + (16 * wave() + matrix_column()) * TOKEN_PITCH);
#pragma unroll
  for (int c = 0; c < TILES; ++c)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) to[c].at[i] = to_float(row[16 * c + matrix_row(i)]);
}

// Rows of `out` in the order in which tokens are met, from the block's first column on.
struct OutRows {
  Element* first;
  int stride, columns;  // stride: elements

  OutRows(const View& view, const Tokens& tokens, int64_t head, int64_t column, bool reverse)
      : first(static_cast<Element*>(view.data)), stride(static_cast<int>(reverse ? -view.strides[1] : view.strides[1])),
        columns(static_cast<int>(view.shape[3] - column)) {
    const int64_t token = reverse ? tokens.end - 1 : tokens.first;
    first += tokens.row * view.strides[0] + token * view.strides[1] + head * view.strides[2] + column;
  }
  // A wave's sums of columns by tokens, of those from `token` on.
  template <int N> void store(const Sums (&sums)[N], int token, int count) const {
#pragma unroll
    for (int r = 0; r < N; ++r) {
      const int t = token + 16 * r + matrix_column();
      if (t >= count) continue;
      Element* row = first + static_cast<int64_t>(t) * stride + 16 * wave();
      const int left = columns - 16 * wave();
#pragma unroll
      for (int i = 0; i < SUMS; ++i)
        if (matrix_row(i) < left) row[matrix_row(i)] = from_float<Element>(sums[r].at[i]);
    }
  }
};
