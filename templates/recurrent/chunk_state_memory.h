// GPU vocabulary of the chunked recurrence: a warp's columns of a state in memory, as [keys][columns] or with a row a column. After
// chunk_block.h's State.
#pragma once

template <bool ROW_A_COLUMN> struct StateInMemory {
  float* data;
  int stride, keys, columns;  // stride: elements, from row to row; others: of the matrix, from the warp's first column on

  StateInMemory(const View& view, int64_t sequence, int64_t head, int64_t column) : data(nullptr), stride(0), keys(0), columns(0) {
    if (!is_given(view)) return;
    stride = static_cast<int>(view.strides[2]);
    keys = static_cast<int>(view.shape[ROW_A_COLUMN ? 3 : 2]);
    columns = static_cast<int>(view.shape[ROW_A_COLUMN ? 2 : 3] - column);
    data = static_cast<float*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + column * (ROW_A_COLUMN ? view.strides[2] : 1);
  }
  // Calls use(n, i, at) for each of the lane's numbers that there are: element i of sums n is `*at`. Addresses are made one after another: all at
  // once would take more registers than the state.
  template <class Use> void each(Use use) const {
    if constexpr (ROW_A_COLUMN) {
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
    } else {
      const float* at = data + lane() % 4 * 2 * stride + lane() / 4;
#pragma unroll
      for (int n = 0; n < 2 * SLICES; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (8 * n + lane() % 4 * 2 + i % 2 < keys && lane() / 4 + i / 2 * 8 < columns) use(n, i, at + i % 2 * stride + i / 2 * 8);
        at = keep(at + 8 * stride);
      }
    }
  }
};
