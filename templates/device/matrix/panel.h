// CPU vocabulary: the matrix product's inner loop. PANEL results of VECTORS vectors each stay in registers over all steps.
#pragma once
#include "device/number/vector.h"

// c[p][:] (+)= sum over s of a[p * A_ROW + s * A_STEP] * b[s][:], for p < PANEL. Rows of b and c are VECTORS * LANES floats, without gaps.
// ADD: on top of c. Otherwise `largest` [VECTORS * LANES] is raised to each result (NaN is passed over).
template <int PANEL, int VECTORS, int64_t A_ROW, int64_t A_STEP, bool ADD>
static inline __attribute__((always_inline)) void panel_product(const float* __restrict a, const float* __restrict b, int64_t steps,
                                                                float* __restrict c, float* __restrict largest) {
  constexpr int64_t WIDTH = VECTORS * LANES;
  Floats sum[PANEL][VECTORS];
#pragma GCC unroll 64
  for (int p = 0; p < PANEL; ++p)
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) sum[p][v] = Floats{};
#pragma GCC unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    Floats row[VECTORS];
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) row[v] = load_floats(b + s * WIDTH + v * LANES);
#pragma GCC unroll 64
    for (int p = 0; p < PANEL; ++p) {
      const Floats factor = splat(a[p * A_ROW + s * A_STEP]);
#pragma GCC unroll 64
      for (int v = 0; v < VECTORS; ++v) sum[p][v] += factor * row[v];
    }
  }
#pragma GCC unroll 64
  for (int p = 0; p < PANEL; ++p)
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) {
      float* to = c + p * WIDTH + v * LANES;
      store_floats(to, ADD ? load_floats(to) + sum[p][v] : sum[p][v]);
    }
  if constexpr (!ADD) {
#pragma GCC unroll 64
    for (int v = 0; v < VECTORS; ++v) {
      Floats most = load_floats(largest + v * LANES);
#pragma GCC unroll 64
      for (int p = 0; p < PANEL; ++p) most = larger_of(sum[p][v], most);
      store_floats(largest + v * LANES, most);
    }
  }
}
