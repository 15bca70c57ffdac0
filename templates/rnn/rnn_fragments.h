// GPU vocabulary: a slice of a recurrent layer's weights in registers, as operands A of mma_16x8x16, and states that come as operands B by
// an exchange. A template defines Element, FEATURES (of a slice), LINES_A_FEATURE, ROWS (of the batch), CHUNKS (of 32 features a
// warp) before.
//
// Each of WARPS warps sums over CHUNKS chunks of its own. Within a chunk lane l = 4 g + t has elements 8 t .. 8 t + 7, as its 16 bytes
// come: the first four are its part of one operand, the others of the next. The order is the same in both factors, and no sum depends on it.
#pragma once
#include "device/tile/exchange.h"

constexpr int REGISTERS = ${registers};  // of a thread, for weights, states and sums
constexpr int WARPS = 8, THREADS = WARPS * WARP, CHUNK = 32;
constexpr uint32_t PAUSE = ${pause};  // clocks before the first look
constexpr int SUM_THREADS = THREADS, SUM_PARTS = WARPS, LINE_TILES = (LINES_A_FEATURE * FEATURES + 15) / 16, PART_LINES = 16 * LINE_TILES, WEIGHT_WORDS = 4;
#include "rnn/rnn_matrix_sums.h"
// Small sums have two places, in turn: some warps may still read those of the step before.
constexpr bool IN_TURN = LINE_TILES * ROWS <= 32;
constexpr int ALL_FLOATS = (IN_TURN ? 2 : 1) * WARPS * PART_FLOATS;
static inline void sync_steps() { sync_block(); }  // all threads that go on with sums

// Tiles of 16 lines and a chunk: HELD of them stay in registers, as many as fit there beside the states of a step and its sums; the others in
// shared memory, each thread's own words side by side.
constexpr int TILES = LINE_TILES * CHUNKS, LEFT = (REGISTERS - 4 * ROW_TILES * (LINE_TILES + CHUNKS)) / 8;
constexpr int HELD = LEFT < 0 ? 0 : LEFT < TILES ? LEFT : TILES;

constexpr bool ALL_AT_ONCE = CHUNKS * ROW_TILES <= 8;  // few states are looked at again all at once: one look takes as long as many

// A chunk of this warp's part of a panel, all rows.
struct Received {
  Pack<uint32_t, 4> of[ROW_TILES];

  void look_at(const uint32_t* panel, int chunk) {
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
      of[n] = look<4>(panel + ((warp() * CHUNKS + chunk) * ROWS + 8 * n + lane() / 4) * CHUNK_WORDS + lane() % 4 * 4);
  }
  bool lacks_any_here() const {
    uint32_t largest = 0;
#pragma unroll
    for (int n = 0; n < ROW_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = largest > of[n].at[i] ? largest : of[n].at[i];
    return largest == NOT_SENT;
  }
  bool lacks_some() const { return any_in_warp(lacks_any_here()); }
  // Whether it had to look again.
  bool wait_for(const uint32_t* panel, int chunk) {
    bool again = false;
    for (; LOOKS_AGAIN && lacks_some(); again = true) look_at(panel, chunk);
    return again;
  }
};

static inline void look_at_all(Received (&states)[CHUNKS], const uint32_t* panel) {
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) states[c].look_at(panel, c);
}
static inline bool lacks_any(const Received (&states)[CHUNKS]) {
  bool lacks = false;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) lacks = lacks || states[c].lacks_any_here();
  return any_in_warp(lacks);
}

struct Fragments {
  float* all_sums;
  Pack<uint32_t, 4>* kept = reinterpret_cast<Pack<uint32_t, 4>*>(all_sums + ALL_FLOATS);  // [TILES - HELD][2][THREADS]
  Pack<uint32_t, 4> of[LINE_TILES][CHUNKS][2];

  // All of a block's threads, before anything else. memory: the launch's shared memory.
  explicit Fragments(float* memory) : all_sums(memory) {}
  static bool receives() { return false; }
  static void receive(const uint32_t*, int) {}

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

  // All sums of a step of a block: each warp's to its part of shared memory, of which this returns the first. All of a warp's states are
  // looked at before the first are needed; meanwhile() runs in between.
  template <class Meanwhile> float* multiply(const uint32_t* panel, int step, const Meanwhile& meanwhile) const {
    float* const parts = all_sums + (IN_TURN ? step % 2 * (WARPS * PART_FLOATS) : 0);
    float* const part = parts + warp() * PART_FLOATS;
    Received states[CHUNKS];
    if constexpr (PAUSE > 0) {
      meanwhile();
      pause_clocks(PAUSE);
      look_at_all(states, panel);
    } else {
      look_at_all(states, panel);
      meanwhile();
    }
    while (ALL_AT_ONCE && LOOKS_AGAIN && lacks_any(states)) look_at_all(states, panel);
    float sums[LINE_TILES][ROW_TILES][4] = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!ALL_AT_ONCE && states[c].wait_for(panel, c))
#pragma unroll
        for (int later = c + 1; later < CHUNKS; ++later) states[later].look_at(panel, later);  // all at once: what was seen of them is old
#pragma unroll
      for (int m = 0; m < LINE_TILES; ++m) {
        const Pack<uint32_t, 4> w[2] = {get(m, c, 0), get(m, c, 1)};
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
    for (int m = 0; m < LINE_TILES; ++m) store_sums(part, m, [&](int n, int i) { return sums[m][n][i]; });
    return parts;
  }
};
