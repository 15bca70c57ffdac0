// Visible tokens of mean pooling's rows, on a GPU. Needs mean_pooling/pooling_rows.h before it.
#pragma once
constexpr int COUNTED = 2048;  // tokens of a part
constexpr int COUNT_WARPS = 8;

// Sum over the warp; every lane gets it.
static inline int64_t sum_over_warp(int64_t x) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    const uint64_t low = shuffle_xor(static_cast<uint32_t>(x), mask), high = shuffle_xor(static_cast<uint32_t>(x >> 32), mask);
    x += static_cast<int64_t>(high << 32 | low);
  }
  return x;
}

// counts[row][part]: the visible tokens of COUNTED tokens of a row. A warp counts one part.
static inline void count_parts(const Line& line, const bool* mask, int64_t mask_stride, int32_t* counts, int64_t rows, int64_t parts) {
  const int64_t item = static_cast<int64_t>(block_x()) * COUNT_WARPS + warp(), row = item / parts, part = item % parts;
  if (row >= rows) return;
  const RowTokens tokens = tokens_of(line, row);
  const bool* visible = mask + tokens.sequence * mask_stride;
  const int64_t begin = tokens.begin + part * COUNTED, end = smaller(begin + COUNTED, tokens.end);
  int64_t count = 0;
  for (int64_t t = begin + lane(); t < end; t += 8 * WARP) {
    bool seen[8];
    for (int u = 0; u < 8; ++u) seen[u] = t + u * WARP < end && visible[t + u * WARP];
    for (int u = 0; u < 8; ++u) count += seen[u];
  }
  count = sum_over_warp(count);
  if (lane() == 0) counts[item] = static_cast<int32_t>(count);
}

// Visible tokens of a row: its tokens, or those that were counted. The lanes of a warp call it together.
static inline int64_t visible_tokens(const RowCursor& rows, const int32_t* counts, int64_t parts) {
  if (!MASKED) return rows.end - rows.begin;
  if (parts == 1) return counts[rows.row];
  int64_t count = 0;
  for (int64_t part = lane(); part < parts; part += WARP) count += counts[rows.row * parts + part];
  return sum_over_warp(count);
}
