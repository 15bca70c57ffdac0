// GPU vocabulary of ssd on matrix instructions of a wave: a chunk's steps, states whose rows are features of x, and D x. Part of a template, after
// recurrent/chunk_wave_products.h.
#pragma once
#include "recurrent/chunk_wave_turned_state.h"
#include "ssd/dual_numbers.h"

// By a warp: sums of a chunk's steps, from its first token to each; of lane l tokens 2 l and 2 l + 1.
static inline void put_times(const float (&steps)[2], LongSum* to) {
  const LongSum first = {steps[0], 0}, second = {steps[1], 0};
  LongSum sum = first + second;
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const LongSum earlier = from_lane(sum, lane() - by < 0 ? 0 : lane() - by);
    if (lane() >= by) sum = sum + earlier;
  }
  const LongSum before = from_lane(sum, lane() > 0 ? lane() - 1 : 0);
  if (2 * lane() < CHUNK) to[2 * lane()] = lane() > 0 ? before + first : first, to[2 * lane() + 1] = sum;
}

// A chunk's log gates and steps, by the block's first warp; and `times`, if they are wanted.
static inline void load_steps(const DualNumbers& numbers, int token, int count, Gates& to, LongSum* times = nullptr) {
  if (warp() != 0) return;
  float gates[2], steps[2];
  numbers.load(token, count < token + CHUNK ? count : token + CHUNK, gates, steps);
  put_gates(to, gates);
  put_betas(to, steps);
  if (times) put_times(steps, times);
}

// sums [16 columns][16 tokens] of TILES tiles += skip x, of a wave's columns of the transposed tile of x in shared memory.
static inline void add_skip(Sums (&sums)[TILES], const char* tile, float skip) {
#pragma unroll
  for (int r = 0; r < TILES; ++r)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const Element* row = reinterpret_cast<const Element*>(tile + (16 * wave() + matrix_row(i)) * TOKEN_PITCH);
      sums[r].at[i] += skip * to_float(row[16 * r + matrix_column()]);
    }
}
