// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: rows of gradients, norms, and groups of chunks. Part of
// a template, which has defined KEPT before.
#pragma once

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;

// Groups of KEPT chunks of all sequences before one.
static inline int64_t groups_before(const int32_t* cum_seqlens, const Tokens& tokens, int64_t sequence, int64_t length) {
  constexpr int GROUP = CHUNK * KEPT;
  return cum_seqlens ? tokens.first / GROUP + sequence : sequence * ((length + GROUP - 1) / GROUP);
}

// Factors that make the norms 1 of rows whose gradient is made, and of those that are written: for dv, of k and q.
struct RowNorms {
  float own[CHUNK], written[CHUNK];
};
// Norms' factors of a chunk's rows, eight lanes a row.
static inline void put_row_norms(const KeyRows& own, const KeyRows& written, int token, int count, RowNorms& to) {
#pragma unroll 1
  for (int row = thread_x() / 8; row < 2 * CHUNK; row += THREADS / 8) {
    const KeyRows& rows = row < CHUNK ? own : written;
    const int t = row % CHUNK;
    const Element* from = rows.first + static_cast<int64_t>(token + t) * rows.stride;
    float squares = 0;
#pragma unroll 1
    for (int i = thread_x() % 8 * 8; token + t < count && i < rows.columns; i += 64) {
      const Pack<Element, 8> x = load_pack<8>(from + i);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += to_float(x.at[j]) * to_float(x.at[j]);
    }
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) squares += shuffle_xor(squares, mask);
    float* norms = row < CHUNK ? to.own : to.written;  // GCC's sanitizers copy the array that `?:` chooses
    if (thread_x() % 8 == 0) norms[t] = rsqrt_of(squares + 1e-6f);
  }
}

// Rows of a gradient of one head in the order in which tokens are met, from the block's first column on: of elements or (`sums`) of floats.
struct WalkRows {
  void* first;
  int stride, columns;  // stride: numbers
  bool sums;

  WalkRows(const View& view, float* to, const Tokens& tokens, int64_t head, int64_t heads, int64_t column, bool reverse) : sums(to != nullptr) {
    const int64_t token = reverse ? tokens.end - 1 : tokens.first, features = view.shape[3];
    if (sums) {
      stride = static_cast<int>(heads * features);
      first = to + (tokens.row * view.shape[1] + token) * stride + head * features + column;
    } else {
      stride = static_cast<int>(view.strides[1]);
      first = static_cast<Element*>(view.data) + tokens.row * view.strides[0] + token * stride + head * view.strides[2] + column;
    }
    columns = static_cast<int>(features - column);
    if (reverse) stride = -stride;
  }
  // A wave's sums of columns by tokens, of those from `token` on.
  void store(const Sums (&x)[TILES], int token, int count) const {
    const int left = columns - 16 * wave();
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const int t = token + 16 * r + matrix_column();
      if (t >= count) continue;
      const int64_t row = static_cast<int64_t>(t) * stride + 16 * wave();
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        if (matrix_row(i) >= left) continue;
        if (sums) static_cast<float*>(first)[row + matrix_row(i)] = x[r].at[i];
        else static_cast<Element*>(first)[row + matrix_row(i)] = from_float<Element>(x[r].at[i]);
      }
    }
  }
  // The same of tokens by columns.
  void store_tokens(const Sums (&x)[TILES], int token, int count) const {
    const int column = 16 * wave() + matrix_column();
    if (column >= columns) return;
#pragma unroll
    for (int c = 0; c < TILES; ++c) {
      part();
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int t = token + 16 * c + matrix_row(i);
        if (t >= count) continue;
        const int64_t at = static_cast<int64_t>(t) * stride + column;
        if (sums) static_cast<float*>(first)[at] = x[c].at[i];
        else static_cast<Element*>(first)[at] = from_float<Element>(x[c].at[i]);
      }
    }
  }
};

#include "recurrent/chunk_wave_turned_state.h"
