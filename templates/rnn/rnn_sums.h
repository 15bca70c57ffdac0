// GPU vocabulary: a block's sums of a step of a recurrent layer, and what goes on with them. The header that makes them defines before
// SUM_THREADS (that go on with them), SUM_PARTS (that each have sums over a part of the features, all of the block's lines and rows),
// PART_LINES (in shared memory) and CHUNK (features of a panel side by side).
#pragma once

constexpr int LINES = LINES_A_FEATURE * FEATURES, ROW_TILES = ROWS / 8;
constexpr int WORD_FEATURES = 4 / sizeof(Element), CHUNK_WORDS = CHUNK / WORD_FEATURES;
constexpr int PART_FLOATS = PART_LINES * ROWS + (WORD_FEATURES == 1 ? 4 : 2);  // of a part's sums in shared memory; parts begin in different banks
static_assert(LINES <= PART_LINES);

// What goes on with sums: units of two neighbouring features of a row, each of SHARE lanes, which share the sums.
constexpr int PAIRS = FEATURES / 2, UNITS = PAIRS * ROWS;
constexpr int SHARE = SUM_PARTS >= 4 && 4 * UNITS <= SUM_THREADS ? 4 : 2 * UNITS <= SUM_THREADS ? 2 : 1;
constexpr int PANEL_WORDS = 256 / WORD_FEATURES * CHUNKS * ROWS;  // states of a part of the batch
static_assert(ROWS % 8 == 0 && FEATURES % 2 == 0 && UNITS <= SUM_THREADS && SHARE * UNITS % WARP == 0);
static inline int unit_of_thread() { return thread_x() / SHARE; }
static inline bool is_first_of_unit() { return thread_x() % SHARE == 0; }

// Lines of a slice: those of a gate side by side, the features of even number before the odd ones, so that eight pairs of a row are read
// from eight neighbouring lines.
static inline int feature_of_line(int line) {
  const int place = line % FEATURES;
  return place < PAIRS ? 2 * place : 2 * (place - PAIRS) + 1;
}
static inline int line_of(int gate, int pair, int odd) { return gate * FEATURES + odd * PAIRS + pair; }

// Where a warp's sum lies: eight lines at four rows, and four lines at eight rows, are in different banks.
static inline int place_of_sum(int line, int row) {
  const int moved = ROWS >= 32 ? line % 4 * 8 + line / 4 % 2 * 4 : ROWS == 16 ? line / 2 % 2 * 8 + line / 4 % 2 * 4 : line / 4 % 2 * 4;
  return line * ROWS + (row ^ moved);
}

// By all lanes of a warp: the same in all of a unit.
static inline float sum_of_parts(const float* parts, int line, int row) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < SUM_PARTS; w += SHARE) sum += parts[(w + thread_x() % SHARE) * PART_FLOATS + place_of_sum(line, row)];
#pragma unroll
  for (int mask = 1; mask < SHARE; mask *= 2) sum += shuffle_xor(sum, mask);
  return sum;
}
