// CPU vocabulary: the operands of a matrix product, packed as f32. A "row" of the left operand and a "column" of the right one belong to
// an element of the result; "steps" are summed over.
#pragma once
#include "device/number/vector.h"

static inline int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

// Asks for bytes [from, from + bytes), to be kept beyond the first cache level.
static inline void prefetch_bytes(const void* from, int64_t bytes) {
  const char* at = static_cast<const char*>(from);
  for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(at + byte, 0, 2);
  if (bytes > 0) __builtin_prefetch(at + bytes - 1, 0, 2);
}

// Part `part` of `parts` of lines [0, lines) of `bytes` bytes each, `pitch` elements apart.
template <class T>
static inline void prefetch_part(const T* from, int64_t pitch, int64_t lines, int64_t bytes, int64_t part, int64_t parts) {
  for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) prefetch_bytes(from + line * pitch, bytes);
}

// to[i] = from[i] for i < count, then zeros up to `padded`.
template <class T>
static inline void copy_row(float* to, const T* from, int64_t count, int64_t padded) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store_floats(to + i, load_floats(from + i));
  for (; i < count; ++i) to[i] = to_float(from[i]);
  for (; i < padded; ++i) to[i] = 0;
}

// The left operand where a row's steps lie side by side: element (i, s) at i * stride + s. Packed as it lies; for MOST_STEPS steps.
template <class T, int64_t MOST_STEPS>
struct LeftRows {
  static constexpr int64_t ROW = MOST_STEPS + LANES, STEP = 1;  // rows of a tile must not fall into one cache set
  static constexpr int64_t floats(int64_t rows) { return rows * ROW; }
  static constexpr int64_t tile_at(int64_t row) { return row * ROW; }
  const T* data;
  int64_t stride;

  void pack(float* to, int64_t rows, int64_t first, int64_t count) const {
    for (int64_t i = 0; i < rows; ++i) {
      if (i + 2 < rows) prefetch_bytes(data + (i + 2) * stride + first, count * static_cast<int64_t>(sizeof(T)));
      copy_row(to + i * ROW, data + i * stride + first, count, count);
    }
  }
  void prefetch(int64_t rows, int64_t first, int64_t count, int64_t part, int64_t parts) const {
    prefetch_part(data + first, stride, rows, count * static_cast<int64_t>(sizeof(T)), part, parts);
  }
};

// The left operand where a step's rows lie side by side: element (i, s) at s * stride + i. Packed as tiles of TILE_ROWS rows, step by step.
template <class T, int64_t TILE_ROWS, int64_t MOST_STEPS>
struct LeftColumns {
  static constexpr int64_t ROW = 1, STEP = TILE_ROWS;
  static constexpr int64_t PITCH = TILE_ROWS * MOST_STEPS + 16;  // floats a tile: one step of all tiles must not fall into one cache set
  static constexpr int64_t floats(int64_t rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS * PITCH; }
  static constexpr int64_t tile_at(int64_t row) { return row / TILE_ROWS * PITCH; }
  const T* data;
  int64_t stride;

  void pack(float* to, int64_t rows, int64_t first, int64_t count) const {
    constexpr int64_t TOGETHER = 16;  // steps: their rows are read line by line, a tile is written as a piece
    for (int64_t s = 0; s < count; s += TOGETHER) {
      const int64_t steps = least_of(TOGETHER, count - s);
      const T* from = data + (first + s) * stride;
      for (int64_t next = 0; next < least_of(TOGETHER, count - s - TOGETHER); ++next)
        prefetch_bytes(from + (TOGETHER + next) * stride, rows * static_cast<int64_t>(sizeof(T)));
      for (int64_t i = 0; i < rows; i += TILE_ROWS) {
        float* tile = to + tile_at(i) + s * STEP;
        if (i + TILE_ROWS <= rows)
          copy_steps<true>(tile, from + i, steps, TILE_ROWS);
        else
          copy_steps<false>(tile, from + i, steps, rows - i);
      }
    }
  }
  void prefetch(int64_t rows, int64_t first, int64_t count, int64_t part, int64_t parts) const {
    prefetch_part(data + first * stride, stride, count, rows * static_cast<int64_t>(sizeof(T)), part, parts);
  }

 private:
  template <bool WHOLE>
  void copy_steps(float* tile, const T* from, int64_t steps, int64_t rows) const {
    for (int64_t s = 0; s < steps; ++s, tile += STEP, from += stride)
      for (int64_t p = 0; p < (WHOLE ? TILE_ROWS : rows); ++p) tile[p] = to_float(from[p]);
  }
};

// The right operand where a step's columns lie side by side: element (s, j) at s * stride + j. A panel has WIDTH columns, zeros past
// `width`.
template <class T, int64_t WIDTH>
struct RightRows {
  const T* data;
  int64_t stride;

  void pack(float* to, int64_t column, int64_t width, int64_t first, int64_t count) const {
    const T* from = data + first * stride + column;
    constexpr int64_t AHEAD = 8;
    for (int64_t s = 0; s < count; ++s, from += stride, to += WIDTH) {
      if (s + AHEAD < count) prefetch_bytes(from + AHEAD * stride, width * static_cast<int64_t>(sizeof(T)));
      copy_row(to, from, width, WIDTH);
    }
  }
  void prefetch(int64_t column, int64_t first, int64_t count, int64_t part, int64_t parts) const {
    prefetch_part(data + first * stride + column, stride, count, WIDTH * static_cast<int64_t>(sizeof(T)), part, parts);
  }
};

// The right operand where a column's steps lie side by side: element (s, j) at j * stride + s.
template <class T, int64_t WIDTH>
struct RightColumns {
  const T* data;
  int64_t stride;

  void pack(float* to, int64_t column, int64_t width, int64_t first, int64_t count) const {
    const T* from = data + column * stride + first;
    for (int64_t j = 0; j < WIDTH; j += LANES) {
      const int64_t lines = least_of(LANES, width - j), whole = lines == LANES ? count / LANES * LANES : 0;
      for (int64_t s = 0; s < whole; s += LANES) pack_square(to + s * WIDTH + j, from + j * stride + s);
      if (lines <= 0)
        for (int64_t s = 0; s < count; ++s) store_floats(to + s * WIDTH + j, Floats{});
      else if (whole < count)
        pack_some(to + whole * WIDTH + j, from + j * stride + whole, lines, count - whole);
    }
  }
  void prefetch(int64_t column, int64_t first, int64_t count, int64_t part, int64_t parts) const {
    prefetch_part(data + column * stride + first, stride, WIDTH, count * static_cast<int64_t>(sizeof(T)), part, parts);
  }

 private:
  // LANES columns, LANES steps.
  void pack_square(float* to, const T* from) const {
    Floats lines[LANES];
#pragma GCC unroll 16
    for (int64_t line = 0; line < LANES; ++line) lines[line] = load_floats(from + line * stride);
    transpose(lines);
#pragma GCC unroll 16
    for (int64_t step = 0; step < LANES; ++step) store_floats(to + step * WIDTH, lines[step]);
  }
  // `count` columns of LANES, zeros for the others.
  void pack_some(float* to, const T* from, int64_t count, int64_t steps) const {
    for (int64_t s = 0; s < steps; s += LANES, to += LANES * WIDTH, from += LANES) {
      Floats lines[LANES];
      for (int64_t line = 0; line < LANES; ++line) lines[line] = line < count ? load_some(from + line * stride, steps - s) : Floats{};
      transpose(lines);
      for (int64_t step = 0; step < least_of(LANES, steps - s); ++step) store_floats(to + step * WIDTH, lines[step]);
    }
  }
};
