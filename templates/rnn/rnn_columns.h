// CPU vocabulary: weights of a recurrent layer by panels. A panel holds all gates of WIDTH features side by side: column c of a layer's
// product is feature c / COLUMNS * WIDTH + c % WIDTH of gate c % COLUMNS / WIDTH, where COLUMNS = GATES * WIDTH. A template defines GATES
// and WIDTH, a multiple of LANES, before.
#pragma once
#include "device/matrix/product_pack.h"
#include "rnn/rnn_some.h"

constexpr int64_t COLUMNS = GATES * WIDTH;

// Where a vector of columns comes from: features `feature`.. of a gate; `count` of them are there, 0 or less: none.
struct ColumnVector {
  int64_t gate, feature, count;
  ColumnVector(int64_t column, int64_t features)
      : gate(column % COLUMNS / WIDTH), feature(column / COLUMNS * WIDTH + column % WIDTH), count(features - feature) {}
};

// Weights [GATES * features, steps] of one direction.
template <class T>
struct LayerWeights {
  const T* data;
  int64_t stride, features;

  // LANES columns from `column` on, steps first.. up to first + count: to[s * pitch + lane], zeros where there is no feature.
  template <class To>
  void pack_vector(To* to, int64_t pitch, int64_t column, int64_t first, int64_t count) const {
    const ColumnVector found(column, features);
    const int64_t lines = found.count < LANES ? found.count : LANES;
    const T* from = data + (found.gate * features + found.feature) * stride + first;
    for (int64_t s = 0; s < count; s += LANES) {
      Floats block[LANES];
      for (int64_t line = 0; line < LANES; ++line) block[line] = line < lines ? load_part(from + line * stride + s, count - s) : Floats{};
      transpose(block);
      for (int64_t step = 0; step < least_of(LANES, count - s); ++step) store_elements(to + (s + step) * pitch, block[step]);
    }
  }
};

// The right operand of product.h's multiply_block: columns from `start` on.
template <class T, int64_t PITCH>
struct LayerColumns {
  LayerWeights<T> weights;
  int64_t start;

  void pack(float* to, int64_t column, int64_t, int64_t first, int64_t count) const {
    for (int64_t j = 0; j < PITCH; j += LANES) weights.pack_vector(to + j, PITCH, start + column + j, first, count);
  }
  void prefetch(int64_t column, int64_t first, int64_t count, int64_t part, int64_t parts) const {
    for (int64_t j = PITCH * part / parts; j < PITCH * (part + 1) / parts; ++j) {
      const ColumnVector found(start + column + j, weights.features);
      if (found.count > 0)
        prefetch_bytes(weights.data + (found.gate * weights.features + found.feature) * weights.stride + first,
                       count * static_cast<int64_t>(sizeof(T)));
    }
  }
};

// The left operand: rows t * batch + b of x [B, T, I], from `start` on.
template <class T, int64_t MOST_STEPS>
struct InputRows {
  static constexpr int64_t ROW = MOST_STEPS + LANES, STEP = 1;  // rows of a tile must not fall into one cache set
  static constexpr int64_t floats(int64_t rows) { return rows * ROW; }
  static constexpr int64_t tile_at(int64_t row) { return row * ROW; }
  const View& x;
  int64_t start;

  const T* row(int64_t i) const {
    const int64_t number = start + i, batch = x.shape[0];
    return static_cast<const T*>(x.data) + number % batch * x.strides[0] + number / batch * x.strides[1];
  }
  void pack(float* to, int64_t rows, int64_t first, int64_t count) const {
    for (int64_t i = 0; i < rows; ++i) {
      if (i + 2 < rows) prefetch_bytes(row(i + 2) + first, count * static_cast<int64_t>(sizeof(T)));
      copy_row(to + i * ROW, row(i) + first, count, count);
    }
  }
  void prefetch(int64_t rows, int64_t first, int64_t count, int64_t part, int64_t parts) const {
    for (int64_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i)
      prefetch_bytes(row(i) + first, count * static_cast<int64_t>(sizeof(T)));
  }
};
