// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: lower triangular matrices of 64 x 64 elements, which lie in memory without
// their upper right quarter, and products with them. Part of backward.chunk_delta.sm90.cu.
#pragma once

// A matrix in memory: the first 32 columns of all rows, then the last 32 columns of the rows from 32 on, in boxes of 32 columns with swizzle 64. Where it
// is multiplied the last 32 columns have the rows before, too, which are 0.
constexpr int QUARTER_ROWS = CHUNK / 2, QUARTERS = 3;
constexpr uint32_t QUARTER_ROW = CHUNK / 2 * 2, QUARTER = QUARTER_ROWS * QUARTER_ROW, TRIANGLE = QUARTERS * QUARTER, LAST_COLUMNS = 2 * QUARTER;
static_assert(sizeof(Element) == 2 && sizeof(Piece) == 2 && TRIANGLE % 1024 == 0 && LAST_COLUMNS + 2 * QUARTER == BOX);

// Where 8 columns of a row are in memory, number `pack`.
static inline uint32_t in_triangle(int row, int pack) {
  return static_cast<uint32_t>(pack < 4 ? row : row + QUARTER_ROWS) * QUARTER_ROW + (pack % 4 ^ row / 2 % 4) * 16;
}
// By one thread. `matrix`: its number among those of the chunk and head.
static inline void load_triangle(uint32_t to, const TensorMap& map, uint32_t barrier, int matrix, int head, int chunk) {
#pragma unroll
  for (int i = 0; i < QUARTERS; ++i) load_tile(to + (i < 2 ? i : 3) * QUARTER, map, barrier, {0, QUARTER_ROWS * i, matrix, head, chunk});
}
// The quarter that does not come, by THREADS.
template <int THREADS> static inline void clear_quarter(char* matrix) {
  for (int i = thread_x(); i < static_cast<int>(QUARTER / 16); i += THREADS) store_pack(reinterpret_cast<uint32_t*>(matrix + LAST_COLUMNS) + 4 * i, Pack<uint32_t, 4>{});
}

// sums += a matrix^T.
template <class T> static inline void multiply_by_triangle_rows(Columns& sums, const uint32_t (&a)[4][4], uint32_t matrix) {
  const uint64_t b = depth_major<64>(matrix);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<T, CHUNK>(sums, a[k], moved(b, k / 2 * LAST_COLUMNS + k % 2 * 32), true);
}
// sums += a matrix.
template <class T> static inline void multiply_by_triangle(Columns& sums, const uint32_t (&a)[4][4], uint32_t matrix) {
  const uint64_t b = row_major<64>(matrix, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<T, CHUNK, true>(sums, a[k], moved(b, k * 16 * QUARTER_ROW), true);
}
// sums (+)= values matrix: values by tokens, in shared memory with a row a token.
static inline void multiply_values_by_triangle(Columns& sums, uint32_t values, uint32_t matrix, bool add) {
  const uint64_t a = row_major<128>(values, CHUNK), b = row_major<64>(matrix, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, true, true>(sums, moved(a, k * 2048), moved(b, k * 16 * QUARTER_ROW), add || k > 0);
}
