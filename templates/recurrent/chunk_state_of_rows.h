// GPU vocabulary of the chunked recurrence: a warp's columns of a state that has a row a column in memory. After chunk_block.h's State.
#pragma once

struct StateOfRows {
  float* data;
  int stride, keys, columns;  // stride: elements; others: of the matrix, from the warp's first column on

  StateOfRows(const View& view, int64_t sequence, int64_t head, int64_t column) : data(nullptr), stride(0), keys(0), columns(0) {
    if (!is_given(view)) return;
    stride = static_cast<int>(view.strides[2]);
    keys = static_cast<int>(view.shape[3]);
    columns = static_cast<int>(view.shape[2] - column);
    data = static_cast<float*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + column * view.strides[2];
  }
  // As StateMemory::each.
  template <class Use> void each(Use use) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (lane() / 4 + 8 * h >= columns) continue;
      const float* at = data + (lane() / 4 + 8 * h) * stride + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < 2 * SLICES; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + lane() % 4 * 2 + i < keys) use(n, 2 * h + i, at + i);
        at = keep(at + 8);
      }
    }
  }
};
