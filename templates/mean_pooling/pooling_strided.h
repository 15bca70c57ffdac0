// Mean pooling on a GPU for any strides: where an element lies. Needs device/gpu.h before it.
#pragma once
constexpr int STRIDED_THREADS = 128;

// Element offset of feature c: its index in the dimensions from `first` on, innermost fastest.
static inline int64_t feature_offset(const View& tensor, int first, int64_t c) {
  int64_t offset = 0;
  for (int d = static_cast<int>(tensor.rank) - 1; d >= first; --d) {
    offset += c % tensor.shape[d] * tensor.strides[d];
    c /= tensor.shape[d];
  }
  return offset;
}
