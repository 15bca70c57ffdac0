// CPU vocabulary: rows of states times a packed panel of weights, which a step repeats: a part of the panel that the first cache level
// holds meets all rows before the next part does. A template defines COLUMNS, a panel's, whole vectors, before.
#pragma once
#include "device/matrix/product_pack.h"

constexpr int PANEL_VECTORS = COLUMNS / LANES;

// to[p][:] += sum over s of rows[p * stride + s] * panel[s][:], p < ROWS.
template <int ROWS, class T>
static inline __attribute__((always_inline)) void add_rows(const float* rows, int64_t stride, const T* panel, int64_t steps, float* to) {
  Floats sum[ROWS][PANEL_VECTORS];
#pragma GCC unroll 16
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) sum[p][v] = load_floats(to + p * COLUMNS + v * LANES);
#pragma GCC unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    Floats factor[ROWS];
#pragma GCC unroll 16
    for (int p = 0; p < ROWS; ++p) factor[p] = splat(rows[p * stride + s]);
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) {
      const Floats weights = load_floats(panel + s * COLUMNS + v * LANES);
#pragma GCC unroll 16
      for (int p = 0; p < ROWS; ++p) sum[p][v] += factor[p] * weights;
    }
  }
#pragma GCC unroll 16
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) store_floats(to + p * COLUMNS + v * LANES, sum[p][v]);
}

template <int ROWS, class T>
static __attribute__((noinline)) void add_some_rows(const float* rows, int64_t stride, const T* panel, int64_t steps, float* to, int64_t count) {
  if constexpr (ROWS > 1)
    if (count < ROWS) return add_some_rows<ROWS - 1, T>(rows, stride, panel, steps, to, count);
  add_rows<ROWS>(rows, stride, panel, steps, to);
}

// to[p][:] = sum over all steps, `count` rows.
template <int ROWS, int64_t DEPTH, class T>
static void multiply_panel(const float* rows, int64_t stride, int64_t count, const T* panel, int64_t steps, float* to) {
  __builtin_memset(to, 0, count * COLUMNS * sizeof(float));
  for (int64_t s = 0; s < steps; s += DEPTH)
    for (int64_t p = 0; p < count; p += ROWS)
      add_some_rows<ROWS>(rows + p * stride + s, stride, panel + s * COLUMNS, least_of(DEPTH, steps - s), to + p * COLUMNS, count - p);
}
