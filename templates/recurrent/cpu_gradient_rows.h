// CPU vocabulary: rows of gradients, and of sums over slices of v's features and over heads that share a row.
#pragma once
#include "recurrent/recurrent_rows.h"

// A row of a gradient [batch, tokens, heads, features] or [batch, tokens, heads].
struct GradientRow {
  char* data;
  int64_t type;
  GradientRow(const View& view, int64_t type, int64_t row, int64_t token, int64_t head)
      : data(static_cast<char*>(view.data) +
             (row * view.strides[0] + token * view.strides[1] + head * (view.rank > 3 ? view.strides[2] : 1)) * bytes_of(type)),
        type(type) {}
  void store(int64_t i, float x) const {
    if (type == 0) reinterpret_cast<float*>(data)[i] = x;
    else if (type == 1) reinterpret_cast<half*>(data)[i] = from_float<half>(x);
    else reinterpret_cast<bfloat16*>(data)[i] = from_float<bfloat16>(x);
  }
  // The first `count` of a vector.
  void store(int64_t i, Floats x, int64_t count) const {
    if (type == 0) return store_some(reinterpret_cast<float*>(data) + i, x, count);
    if (type == 1) return store_some(reinterpret_cast<half*>(data) + i, x, count);
    store_some(reinterpret_cast<bfloat16*>(data) + i, x, count);
  }
};

// A row of sums, added over slices and over the heads from `first` on that share a row.
struct Sums {
  const float* data;
  int64_t slices, slice_stride, head_stride, first, count;
  float at(int64_t i) const {
    double sum = 0;
    for (int64_t slice = 0; slice < slices; ++slice)
      for (int64_t head = first; head < first + count; ++head) sum += data[slice * slice_stride + head * head_stride + i];
    return static_cast<float>(sum);
  }
  // A vector, of which `left` numbers are there.
  Floats load(int64_t i, int64_t left) const {
    Floats sum = {};
    for (int64_t slice = 0; slice < slices; ++slice)
      for (int64_t head = first; head < first + count; ++head) sum += load_some(data + slice * slice_stride + head * head_stride + i, left);
    return sum;
  }
};

// A whole row of `count` numbers.
static inline void store_row(const GradientRow& to, const Sums& sums, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES) to.store(i, sums.load(i, count - i), count - i);
}
