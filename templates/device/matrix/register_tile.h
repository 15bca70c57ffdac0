// CPU vocabulary: a tile of ROWS x VECTORS vectors that stays in registers while several products are added to it, of operands whose rows
// may lie any distance apart.
#pragma once
#include "device/number/vector.h"

template <int ROWS, int VECTORS>
using RegisterTile = Floats[ROWS][VECTORS];

template <int ROWS, int VECTORS>
static inline __attribute__((always_inline)) void clear_tile(Floats (&sum)[ROWS][VECTORS]) {
#pragma GCC unroll 64
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) sum[p][v] = Floats{};
}

// sum[p][:] += sum over s of a[p * a_row + s] * b[s * b_row + :].
template <int ROWS, int VECTORS>
static inline __attribute__((always_inline)) void add_product(Floats (&sum)[ROWS][VECTORS], const float* a, int64_t a_row, const float* b,
                                                              int64_t b_row, int64_t steps) {
#pragma GCC unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    Floats row[VECTORS];
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) row[v] = load_floats(b + s * b_row + v * LANES);
#pragma GCC unroll 64
    for (int p = 0; p < ROWS; ++p) {
      const Floats factor = splat(a[p * a_row + s]);
#pragma GCC unroll 64
      for (int v = 0; v < VECTORS; ++v) sum[p][v] += factor * row[v];
    }
  }
}

template <int ROWS, int VECTORS>
static inline __attribute__((always_inline)) void store_tile(const Floats (&sum)[ROWS][VECTORS], float* to, int64_t row) {
#pragma GCC unroll 64
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) store_floats(to + p * row + v * LANES, sum[p][v]);
}
