// GPU vocabulary of the chunked recurrence of halves with the delta rule: powers of two for what tokens write. Part of forward.chunk.gpu.cu
// and its `invert`.
//
// Tokens write u = T x, where T is the inverse and x what is missing: beta (v - what the keys read). The sizes in each row of T add up to
// at most its growth, so that u is at most growth times the largest x. T is kept times a unit that makes its growth at most 2^14, x times
// one that makes the largest at most 2^14; so u times both is at most 2^28, which TWO_UNITS makes a half again, and times all three it goes
// on. Growth is over norms of keys, too, by which a state takes u in.
#pragma once
#include "device/number/size.h"
#include "recurrent/chunk_unit.h"
// After it:
#include "recurrent/chunk_delta_units.h"

constexpr float TWO_UNITS = 0x1p-14f;

// Largest of the sizes of a warp's sums.
template <int N> static inline float largest_size(const float (&sums)[N][4]) {
  float largest = 0;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = larger_of(largest, size_of(sums[n][i]));
  return largest_of_warp(largest);
}

// By all of a block's threads: the unit of an inverse of so many rows.
static inline Unit unit_of_growth(Matrices& m, const Norms& norms, int rows) {
  float growth = 0;
  const int row = thread_x();
  if (row < CHUNK && row < rows) {
    for (int column = 0; column <= row; ++column) growth += size_of(m.inverse[row * PITCH + column]);
    if (NORMED) growth *= larger_of(1, norms.k[row]);
  }
  return unit_of_block<THREADS / WARP>(growth, m);
}
// In the inverse's square, above the diagonal, where nothing is multiplied.
static inline Unit& unit_in(void* square) { return reinterpret_cast<Unit*>(square)[CHUNK / 4 - 1]; }
