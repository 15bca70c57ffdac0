// GPU vocabulary: a slice of a recurrent layer's weights in registers, as operands A of mma_16x8x16, and states that come as operands B by
// an exchange. A template defines Element, FEATURES (of a slice), LINES_A_FEATURE, ROWS (of the batch), CHUNKS (of 32 features a
// warp) and REGISTERS (of a thread, for weights, states and sums) before.
//
// Each of WARPS warps sums over CHUNKS chunks of its own. Within a chunk lane l = 4 g + t has elements 8 t .. 8 t + 7, as its 16 bytes
// come: the first four are its part of one operand, the others of the next. The order is the same in both factors, and no sum depends on it.
#pragma once
#include "device/tile/exchange.h"

constexpr int WARPS = 8, THREADS = WARPS * WARP, CHUNK = 32, CHUNK_WORDS = CHUNK / 2;
constexpr int LINES = LINES_A_FEATURE * FEATURES, LINE_TILES = (LINES + 15) / 16, ROW_TILES = ROWS / 8;
constexpr int PART_FLOATS = LINE_TILES * 16 * ROWS + 2;  // of a warp's sums in shared memory; parts begin in different banks
// Small sums have two places, in turn: some warps may still read those of the step before.
constexpr bool IN_TURN = LINE_TILES * ROWS <= 32;
constexpr int ALL_FLOATS = (IN_TURN ? 2 : 1) * WARPS * PART_FLOATS;
static inline float* sums_of_step(float* all, int step) { return all + (IN_TURN ? step % 2 * (WARPS * PART_FLOATS) : 0); }

// What goes on with sums: units of two neighbouring features of a row, each of SHARE lanes, which share the sums.
constexpr int PAIRS = FEATURES / 2, UNITS = PAIRS * ROWS, SHARE = 4 * UNITS <= THREADS ? 4 : 2 * UNITS <= THREADS ? 2 : 1;
constexpr int PANEL_WORDS = WARPS * CHUNKS * ROWS * CHUNK_WORDS;  // states of a part of the batch
static_assert(ROWS % 8 == 0 && FEATURES % 2 == 0 && UNITS <= THREADS && SHARE * UNITS % WARP == 0);
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

// Tiles of 16 lines and a chunk: HELD of them stay in registers, as many as fit there beside the states of a step and its sums; the others in
// shared memory, each thread's own words side by side.
constexpr int TILES = LINE_TILES * CHUNKS, LEFT = (REGISTERS - 4 * ROW_TILES * (LINE_TILES + CHUNKS)) / 8;
constexpr int HELD = LEFT < 0 ? 0 : LEFT < TILES ? LEFT : TILES;

struct Fragments {
  Pack<uint32_t, 4>* kept;  // [TILES - HELD][2][THREADS]
  Pack<uint32_t, 4> of[LINE_TILES][CHUNKS][2];

  static bool holds(int m, int c) { return c * LINE_TILES + m < HELD; }
  Pack<uint32_t, 4>* place(int m, int c, int h) const { return kept + ((c * LINE_TILES + m - HELD) * 2 + h) * THREADS + thread_x(); }

  // from(line, k): eight elements of a line from k on, as words.
  template <class From> void load(const From& from) {
#pragma unroll
    for (int m = 0; m < LINE_TILES; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
          const Pack<uint32_t, 4> words = from(16 * m + 8 * h + lane() / 4, (warp() * CHUNKS + c) * CHUNK + lane() % 4 * 8);
          if (holds(m, c))
            of[m][c][h] = words;
          else
            *place(m, c, h) = words;
        }
  }
  Pack<uint32_t, 4> get(int m, int c, int h) const { return holds(m, c) ? of[m][c][h] : *place(m, c, h); }
};

// A chunk of this warp's part of a panel, all rows.
struct Received {
  Pack<uint32_t, 4> of[ROW_TILES];

  void look_at(const uint32_t* panel, int chunk) {
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
      of[n] = look<4>(panel + ((warp() * CHUNKS + chunk) * ROWS + 8 * n + lane() / 4) * CHUNK_WORDS + lane() % 4 * 4);
  }
  bool lacks_some() const {
    uint32_t largest = 0;
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = largest > of[n].at[i] ? largest : of[n].at[i];
    return any_in_warp(largest == NOT_SENT);
  }
  void wait_for(const uint32_t* panel, int chunk) {
    while (LOOKS_AGAIN && lacks_some()) look_at(panel, chunk);
  }
};

// All sums of a step of a block: each warp's to its part of shared memory. All of a warp's states are looked at before the first are needed;
// meanwhile() runs in between.
template <class Meanwhile>
static inline void multiply_panel(const Fragments& weights, const uint32_t* panel, float* parts, const Meanwhile& meanwhile) {
  float* const part = parts + warp() * PART_FLOATS;
  Received states[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) states[c].look_at(panel, c);
  meanwhile();
  float sums[LINE_TILES][ROW_TILES][4] = {};
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    states[c].wait_for(panel, c);
#pragma unroll
    for (int m = 0; m < LINE_TILES; ++m) {
      const Pack<uint32_t, 4> w[2] = {weights.get(m, c, 0), weights.get(m, c, 1)};
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {w[0].at[i], w[1].at[i], w[0].at[i + 1], w[1].at[i + 1]};
#pragma unroll
        for (int n = 0; n < ROW_TILES; ++n) mma_16x8x16<Element>(sums[m][n], a, states[c].of[n].at[i], states[c].of[n].at[i + 1]);
      }
    }
  }
  if constexpr (!IN_TURN) sync_block();  // all are done with the sums of the step before
#pragma unroll
  for (int m = 0; m < LINE_TILES; ++m)
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_pack(part + place_of_sum(16 * m + 8 * h + lane() / 4, 8 * n + lane() % 4 * 2), Pack<float, 2>{{sums[m][n][2 * h], sums[m][n][2 * h + 1]}});
}

// By all lanes of a warp: the same in all of a unit.
static inline float sum_of_parts(const float* parts, int line, int row) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w += SHARE) sum += parts[(w + thread_x() % SHARE) * PART_FLOATS + place_of_sum(line, row)];
#pragma unroll
  for (int mask = 1; mask < SHARE; mask *= 2) sum += shuffle_xor(sum, mask);
  return sum;
}
