// Hopper vocabulary of the attention kernels: a dense bias or mask whose rows tile copies do not take, in rows that they do.
#pragma once
#include "device/attention/attention.h"
#include "device/sm90.h"

// Rows as another bias or mask has them, one after another, each from a multiple of MULTIPLE elements on: 16 bytes or more.
template <int MULTIPLE = 8> static inline View aligned_rows(const View& as, void* data) {
  const int64_t pitch = (as.shape[3] + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
  View view = as;
  view.data = data;
  view.strides[2] = pitch, view.strides[1] = as.shape[2] * pitch, view.strides[0] = as.shape[1] * as.shape[2] * pitch;
  return view;
}

// Rows of a bias, of any strides, to rows of other strides. By all blocks of a grid of THREADS threads.
template <int THREADS, class T> static inline void copy_rows(const View& to, const View& from) {
  constexpr int AHEAD = 8;
  const int64_t rows = to.shape[0] * to.shape[1] * to.shape[2];
#pragma unroll 1
  for (int64_t row = int64_t{block_x()} * (THREADS / WARP) + warp(); row < rows; row += int64_t{grid_x()} * (THREADS / WARP)) {
    const int64_t plane = row / to.shape[2], batch = plane / to.shape[1], head = plane - batch * to.shape[1], query = row - plane * to.shape[2];
    const T* const source = static_cast<const T*>(from.data) + row_offset(from, batch, head, query);
    T* const target = static_cast<T*>(to.data) + row_offset(to, batch, head, query);
    const int keys = static_cast<int>(to.shape[3]);
#pragma unroll 1
    for (int first = lane(); first < keys; first += AHEAD * WARP) {
      T x[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (first + i * WARP < keys) x[i] = source[first + i * WARP];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (first + i * WARP < keys) target[first + i * WARP] = x[i];
    }
  }
}

// A row's elements by words, as they lie in memory; zeros after them. Before them is what lies there.
template <class T> struct RowWords {
  const uint32_t* words;
  int whole;      // words before the last one, of which some bytes are the row's
  uint32_t last;
  uint32_t shift;  // bits of the first word before the row

  RowWords(const T* row, int count) {
    const uint64_t address = reinterpret_cast<uint64_t>(row);
    const int before = static_cast<int>(address % 4), bytes = before + count * static_cast<int>(sizeof(T)), rest = bytes % 4;
    words = reinterpret_cast<const uint32_t*>(address - before), whole = bytes / 4, shift = 8 * before, last = 0;
    if constexpr (sizeof(T) < 4) {
      const uint8_t* const end = reinterpret_cast<const uint8_t*>(words + whole);
#pragma unroll
      for (int i = 0; i < 3; ++i)
        if (i < rest) last |= static_cast<uint32_t>(end[i]) << 8 * i;
    }
  }
  uint32_t operator[](int i) const { return i < whole ? words[i] : i == whole ? last : 0; }
};

// Rows of a bias or mask, of any strides, to aligned rows, with zeros up to the next one: by words, which are shifted where rows start between two.
// seen(batch, query): the keys of a row that anybody reads. By all blocks of a grid of THREADS threads.
template <int THREADS, class T, class Seen> static inline void align_rows(const View& to, const View& from, const Seen& seen) {
  constexpr int AHEAD = 8, SIZE = static_cast<int>(sizeof(T));
  const uint32_t queries = static_cast<uint32_t>(to.shape[2]), heads = static_cast<uint32_t>(to.shape[1]);
  const uint32_t rows = static_cast<uint32_t>(to.shape[0]) * heads * queries, step = grid_x() * (THREADS / WARP);
  const int keys = static_cast<int>(to.shape[3]), count = static_cast<int>(to.strides[2]) * SIZE / 4;
#pragma unroll 1
  for (uint32_t row = block_x() * (THREADS / WARP) + warp(); row < rows; row += step) {
    const uint32_t plane = row / queries, batch = plane / heads, query = row - plane * queries;
    const auto range = seen(batch, static_cast<int>(query));
    const int end = range.end < keys ? (range.end * SIZE + 3) / 4 : count;
    const RowWords<T> source(static_cast<const T*>(from.data) + row_offset(from, batch, plane - batch * heads, query), keys);
    uint32_t* const target = static_cast<uint32_t*>(to.data) + int64_t{row} * count;
#pragma unroll 1
    for (int first = range.first * SIZE / 4 / WARP * WARP; first < end; first += AHEAD * WARP) {
      uint32_t x[AHEAD + 1];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) x[i] = source[first + i * WARP + lane()];
      if constexpr (SIZE < 4) {
        x[AHEAD] = lane() == 0 ? source[first + AHEAD * WARP] : 0;
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
          const uint32_t next = shuffle(lane() == 0 ? x[i + 1] : x[i], (lane() + 1) % WARP);
          x[i] = __funnelshift_r(x[i], next, source.shift);
        }
      }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (first + i * WARP + lane() < end) target[first + i * WARP + lane()] = x[i];
    }
  }
}
