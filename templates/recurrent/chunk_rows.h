// GPU vocabulary of the chunked recurrence: a head's rows of 16-bit elements, which come to shared memory a chunk at a time.
#pragma once
#include "device/tile/tile_transposed.h"
#include "recurrent/recurrent_step.h"

constexpr int CHUNK = 64;

// Rows of one head in the order in which its tokens are met. Elements right of `columns` and rows past the last token become zeros.
template <class T, int COLUMNS, int THREADS> struct ChunkRows {
  using Place = Tile<T, CHUNK, COLUMNS>;
  static constexpr int PACKS = COLUMNS / 8;
  const T* first;
  int stride, columns;  // stride: elements

  ChunkRows(const View& view, const Tokens& tokens, int64_t head, int64_t heads, int64_t start, int columns, bool reverse)
      : first(Numbers<T>(view, tokens, head, heads, start).data), stride(static_cast<int>(view.strides[1])), columns(columns) {
    if (!reverse) return;
    first += (tokens.end - tokens.first - 1) * view.strides[1];
    stride = -stride;
  }

  // Starts copying the chunk whose first token is number `token`, of `count`.
  void copy_async(const Place& to, int token, int count) const {
    const T* from = first + static_cast<int64_t>(token) * stride;
    const int left = count - token;
    if constexpr (THREADS % PACKS == 0) {
      const int row = thread_x() / PACKS, column = thread_x() % PACKS * 8;
      const SharedPointer at = to.at(row, column);
      from += static_cast<int64_t>(row) * stride + column;
      constexpr int STEP = THREADS / PACKS;
      const int64_t step = STEP * static_cast<int64_t>(stride);
#pragma unroll
      for (int i = 0; i < CHUNK; i += STEP) {
        if (STEP <= CHUNK || row < CHUNK) copy_async_16(at + i * Place::PITCH * 2, from, row + i < left && column < columns);
        from = keep(from + step);  // addresses one after another: all of them, kept for the next chunk, would take many registers
      }
    } else {
#pragma unroll 1
      for (int i = thread_x(); i < CHUNK * PACKS; i += THREADS) {
        const int row = i / PACKS, column = i % PACKS * 8;
        copy_async_16(to.at(row, column), from + static_cast<int64_t>(row) * stride + column, row < left && column < columns);
      }
    }
  }
};

// A matrix of 64 x 64 elements that lies densely in global memory.
template <class T, int THREADS> static inline void copy_square_async(const Tile<T, CHUNK, CHUNK>& to, const T* from) {
#pragma unroll
  for (int i = 0; i < CHUNK * CHUNK / 8; i += THREADS) {
    const int pack = i + thread_x();
    copy_async_16(to.at(pack / 8, pack % 8 * 8), from + pack * 8, true);
  }
}
