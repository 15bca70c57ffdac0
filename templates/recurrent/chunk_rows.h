// GPU vocabulary of the chunked recurrence: a head's rows of 16-bit elements, which come to shared memory a chunk at a time.
#pragma once
#include "device/tile/tile_transposed.h"
#include "recurrent/recurrent_step.h"

constexpr int CHUNK = ${chunk_tokens};

// Chunks of all sequences before one: a number that no other sequence's chunks reach.
static inline int64_t chunks_before(const int32_t* cum_seqlens, const Tokens& tokens, int64_t sequence, int64_t length) {
  return cum_seqlens ? tokens.first / CHUNK + sequence : sequence * ((length + CHUNK - 1) / CHUNK);
}
// The last sequence whose chunks begin at or before number `chunk`.
static inline int64_t sequence_of_chunk(const int32_t* cum_seqlens, int64_t sequences, int64_t chunk, int64_t length) {
  if (!cum_seqlens) return chunk / ((length + CHUNK - 1) / CHUNK);
  int64_t low = 0, high = sequences;  // the one looked for is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (cum_seqlens[middle] / CHUNK + middle <= chunk) low = middle;
    else high = middle;
  }
  return low;
}

// Starts copying 64 rows, `stride` elements apart, to shared memory. Rows from `rows` on, and elements from `columns` on, become zeros.
template <int THREADS, class T, int COLUMNS>
static inline void copy_rows_async(const Tile<T, CHUNK, COLUMNS>& to, const T* from, int stride, int rows, int columns) {
  constexpr int PACKS = COLUMNS / 8;
  if constexpr (THREADS % PACKS == 0) {
    constexpr int STEP = THREADS / PACKS;
    const int row = thread_x() / PACKS, column = thread_x() % PACKS * 8;
    const SharedPointer at = to.at(row, column);
    const int64_t step = STEP * static_cast<int64_t>(stride);
    from += static_cast<int64_t>(row) * stride + column;
#pragma unroll
    for (int i = 0; i < CHUNK; i += STEP) {
      if (STEP <= CHUNK || row < CHUNK) copy_async_16(at + i * to.PITCH * 2, from, row + i < rows && column < columns);
      from = keep(from + step);  // addresses one after another: all of them, kept for the next chunk, would take many registers
    }
  } else {
#pragma unroll 1
    for (int i = thread_x(); i < CHUNK * PACKS; i += THREADS) {
      const int row = i / PACKS, column = i % PACKS * 8;
      copy_async_16(to.at(row, column), from + static_cast<int64_t>(row) * stride + column, row < rows && column < columns);
    }
  }
}

// The same of 64 whole rows that lie one after another.
template <int THREADS, class T, int COLUMNS> static inline void copy_dense_async(const Tile<T, CHUNK, COLUMNS>& to, const T* from) {
  constexpr int PACKS = COLUMNS / 8;
  if constexpr (THREADS % PACKS == 0 && THREADS / PACKS <= CHUNK) {
    constexpr int STEP = THREADS / PACKS;
    const int row = thread_x() / PACKS, column = thread_x() % PACKS * 8;
    const SharedPointer at = to.at(row, column);
    from += row * COLUMNS + column;
#pragma unroll
    for (int i = 0; i < CHUNK; i += STEP) copy_async_16(at + i * to.PITCH * 2, from + i * COLUMNS, true);
  } else {
#pragma unroll 1
    for (int i = thread_x(); i < CHUNK * PACKS; i += THREADS) copy_async_16(to.at(i / PACKS, i % PACKS * 8), from + i * 8, true);
  }
}

// Rows of one head in the order in which its tokens are met.
template <class T, int COLUMNS, int THREADS> struct ChunkRows {
  using Place = Tile<T, CHUNK, COLUMNS>;
  const T* first;
  int stride, columns;  // stride: elements; columns: that there are

  ChunkRows(const View& view, const Tokens& tokens, int64_t head, int64_t heads, int64_t start, int columns, bool reverse)
      : first(Numbers<T>(view, tokens, head, heads, start).data), stride(static_cast<int>(view.strides[1])), columns(columns) {
    if (!reverse) return;
    first += (tokens.end - tokens.first - 1) * view.strides[1];
    stride = -stride;
  }

  // Starts copying the chunk whose first token is number `token`, of `count`.
  void copy_async(const Place& to, int token, int count) const {
    copy_rows_async<THREADS>(to, first + static_cast<int64_t>(token) * stride, stride, count - token, columns);
  }
};
