// CPU vocabulary: matrix products with strides, ROWS results of COLUMNS vectors each in registers over all steps.
#pragma once
#include "device/number/vector.h"

// c[r][:] (+)= sum over g < groups, s < steps of a[g * A_GROUP + r * A_ROW + s * A_STEP] * b[(g * steps + s) * B_STEP][:], for r < ROWS.
// Rows of c lie C_ROW apart. ADD: on top of c.
template <int ROWS, int COLUMNS, int64_t A_ROW, int64_t A_STEP, int64_t B_STEP, int64_t C_ROW, bool ADD, int64_t A_GROUP = 0>
static inline __attribute__((always_inline)) void multiply(const float* __restrict a, const float* __restrict b, int64_t steps,
                                                           float* __restrict c, int64_t groups = 1) {
  Floats sum[ROWS][COLUMNS];
#pragma GCC unroll 64
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 64
    for (int v = 0; v < COLUMNS; ++v) sum[r][v] = Floats{};
#pragma GCC unroll 1
  for (int64_t g = 0; g < groups; ++g) {
    const float* factors = a + g * A_GROUP;
#pragma GCC unroll 1
    for (int64_t s = 0; s < steps; ++s, b += B_STEP) {
      Floats row[COLUMNS];
#pragma GCC unroll 64
      for (int v = 0; v < COLUMNS; ++v) row[v] = load_floats(b + v * LANES);
#pragma GCC unroll 64
      for (int r = 0; r < ROWS; ++r) {
        const Floats factor = splat(factors[r * A_ROW + s * A_STEP]);
#pragma GCC unroll 64
        for (int v = 0; v < COLUMNS; ++v) sum[r][v] += factor * row[v];
      }
    }
  }
#pragma GCC unroll 64
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 64
    for (int v = 0; v < COLUMNS; ++v) {
      float* to = c + r * C_ROW + v * LANES;
      store_floats(to, ADD ? load_floats(to) + sum[r][v] : sum[r][v]);
    }
}

// Vectors of a product's row that are kept together: a divisor of `columns`, so that columns * rows results, their factor and a row of b fit
// the registers with the fewest loads a multiplication.
constexpr int columns_together(int columns, int registers) {
  int best = 1;
  double least = 1e9;
  for (int v = 1; v <= columns; ++v) {
    const int rows = (registers - 1 - v) / v;
    if (columns % v != 0 || rows < 1) continue;
    const double loads = 1.0 / v + 1.0 / rows;
    if (loads < least) best = v, least = loads;
  }
  return best;
}

// As many rows as registers hold beside them, a divisor of `rows`.
constexpr int rows_together(int rows, int columns, int registers) {
  int best = 1;
  for (int r = 1; r <= (registers - 1 - columns) / columns; ++r)
    if (rows % r == 0) best = r;
  return best;
}

constexpr int common_multiple(int a, int b) {
  int both = a;
  while (both % b != 0) both += a;
  return both;
}
