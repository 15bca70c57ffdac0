// GPU vocabulary: rows of f32 times a few lines of weights, by a block, in parts of DEPTH through shared memory. A template defines Element,
// THREADS, LINES_A_THREAD (lines that a thread sums for a row), FEATURES (threads side by side, with lines of their own), PARTS (lanes that
// share a sum), ROWS (rows a thread) and KEEPS_LINES (all of
// them lie in shared memory already) before. A thread has the rows row_of_thread() + r * ROWS_AT_ONCE of a tile of TILE_ROWS rows.
#pragma once
#include "device/gpu.h"

constexpr int ROWS_AT_ONCE = THREADS / (FEATURES * PARTS), TILE_ROWS = ROWS_AT_ONCE * ROWS, DEPTH = 64;
constexpr int LINES = LINES_A_THREAD * FEATURES;
constexpr int TILE_PITCH = DEPTH + 1, LINE_PITCH = DEPTH + (sizeof(Element) == 4 ? 1 : 2);  // spreads the banks
static_assert(ROWS_AT_ONCE > 0 && PARTS <= 32);

static inline int part_of_thread() { return thread_x() % PARTS; }
static inline int feature_of_thread() { return thread_x() / PARTS % FEATURES; }
static inline int row_of_thread() { return thread_x() / (PARTS * FEATURES); }

// Lines of weights: [LINES][pitch] in shared memory, from `line(number)`, null where there is none.
template <class Line>
static inline void load_lines(Element* to, int pitch, int64_t first, int64_t count, const Line& line) {
  const int64_t all = LINES * count;
  for (int64_t i = thread_x(); i < all; i += THREADS) {
    const int number = static_cast<int>(i / count);
    const Element* from = line(number);
    to[number * pitch + i % count] = from ? from[first + i % count] : from_float<Element>(0.0f);
  }
}

// sums[r][l] = sum over k < depth of rows[first_row + r][k] times line l * FEATURES + the thread's feature; rows past `row_count` count as
// 0. All lanes of PARTS have the sums. Every thread of the block calls it.
template <class Line>
static inline void multiply_lines(float (&sums)[ROWS][LINES_A_THREAD], const float* rows, int64_t row_stride, int64_t first_row,
                                  int64_t row_count, int64_t depth, const Element* kept, int kept_pitch, const Line& line) {
  __shared__ float tile[TILE_ROWS * TILE_PITCH];
  __shared__ Element brought[KEEPS_LINES ? 1 : LINES * LINE_PITCH];
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int l = 0; l < LINES_A_THREAD; ++l) sums[r][l] = 0;
#pragma unroll 1
  for (int64_t first = 0; first < depth; first += DEPTH) {
    const int count = static_cast<int>(depth - first < DEPTH ? depth - first : DEPTH);
    sync_block();
    for (int i = thread_x(); i < TILE_ROWS * DEPTH; i += THREADS) {
      const int row = i / DEPTH, k = i % DEPTH;
      if (k < count) tile[row * TILE_PITCH + k] = first_row + row < row_count ? rows[(first_row + row) * row_stride + first + k] : 0.0f;
    }
    if constexpr (!KEEPS_LINES) load_lines(brought, LINE_PITCH, first, count, line);
    sync_block();
    const Element* weights = KEEPS_LINES ? kept + first : brought;
    const int pitch = KEEPS_LINES ? kept_pitch : LINE_PITCH;
#pragma unroll 1
    for (int k = part_of_thread(); k < count; k += PARTS) {
      float of_line[LINES_A_THREAD];
#pragma unroll
      for (int l = 0; l < LINES_A_THREAD; ++l) of_line[l] = to_float(weights[(l * FEATURES + feature_of_thread()) * pitch + k]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const float x = tile[(row_of_thread() + r * ROWS_AT_ONCE) * TILE_PITCH + k];
#pragma unroll
        for (int l = 0; l < LINES_A_THREAD; ++l) sums[r][l] += x * of_line[l];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int l = 0; l < LINES_A_THREAD; ++l)
#pragma unroll
      for (int mask = 1; mask < PARTS; mask *= 2) sums[r][l] += shuffle_xor(sums[r][l], mask);
}
