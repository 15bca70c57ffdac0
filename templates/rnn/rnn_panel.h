// CPU vocabulary: rows of f32, or of bf16 for panels of bf16, times a packed panel of weights, which every step repeats. A template defines
// COLUMNS, a panel's, whole vectors, before.
//
// A packed panel has an even number of steps. Of f32 and f16 it is a line of COLUMNS elements for each; of bf16 a line of COLUMNS words for
// two, the first in their lower halves: one shift or mask makes a vector of f32. (A line of bf16 would cost a shuffle besides.)
//
// Many rows: a part of the panel that the first cache level holds meets all of them, as f32, before the next part does, which comes
// nearer meanwhile. One or two: the panel is read once, as it lies, and asked for ahead.
//
// Rows of bf16 have an even number of steps, too, zeros behind the last: two of a row and two of a column are one word each, whose products
// one instruction adds (device/matrix/pair_dot.h).
#pragma once
#include "device/matrix/pair_dot.h"
#include "device/matrix/product_pack.h"
#include "device/number/narrow.h"

constexpr int PANEL_VECTORS = COLUMNS / LANES;
constexpr int64_t AHEAD = 2048;  // bytes of a panel that is read once

template <class T> static inline void store_two_steps(T* panel, int64_t step, int64_t column, Floats first, Floats second) {
  store_elements(panel + step * COLUMNS + column, first);
  store_elements(panel + (step + 1) * COLUMNS + column, second);
}
static inline void store_two_steps(bfloat16* panel, int64_t step, int64_t column, Floats first, Floats second) {  // of bf16 themselves: exact
  const Words words = reinterpret_cast<Words>(first) >> 16 | (reinterpret_cast<Words>(second) & 0xffff0000);
  __builtin_memcpy(panel + step * COLUMNS + 2 * column, &words, sizeof words);
}

// A vector of step `step`, an even one, or of the one behind it.
template <class T> static inline Floats load_step(const T* panel, int64_t step, bool behind, int64_t column) {
  return load_floats(panel + (step + behind) * COLUMNS + column);
}
static inline Floats load_step(const bfloat16* panel, int64_t step, bool behind, int64_t column) {
  Words words;
  __builtin_memcpy(&words, panel + step * COLUMNS + 2 * column, sizeof words);
  return reinterpret_cast<Floats>(behind ? words & 0xffff0000 : words << 16);
}

// sum[p][:] += rows[p * stride] * the step's line. What there is less of stays in registers: factors, or vectors of the line.
template <int ROWS, class T>
static inline __attribute__((always_inline)) void add_step(Floats (&sum)[ROWS][PANEL_VECTORS], const float* rows, int64_t stride, const T* panel,
                                                           int64_t step, bool behind) {
  if constexpr (ROWS <= PANEL_VECTORS) {
    Floats factor[ROWS];
#pragma GCC unroll 16
    for (int p = 0; p < ROWS; ++p) factor[p] = splat(rows[p * stride + step + behind]);
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) {
      const Floats weights = load_step(panel, step, behind, v * LANES);
#pragma GCC unroll 16
      for (int p = 0; p < ROWS; ++p) sum[p][v] += factor[p] * weights;
    }
  } else {
    Floats line[PANEL_VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) line[v] = load_step(panel, step, behind, v * LANES);
#pragma GCC unroll 16
    for (int p = 0; p < ROWS; ++p) {
      const Floats factor = splat(rows[p * stride + step + behind]);
#pragma GCC unroll 16
      for (int v = 0; v < PANEL_VECTORS; ++v) sum[p][v] += factor * line[v];
    }
  }
}

// The same of two steps at once, `step` and the one behind it.
template <int ROWS>
static inline __attribute__((always_inline)) void add_step(Floats (&sum)[ROWS][PANEL_VECTORS], const bfloat16* rows, int64_t stride,
                                                           const bfloat16* panel, int64_t step) {
  Words line[PANEL_VECTORS];
#pragma GCC unroll 16
  for (int v = 0; v < PANEL_VECTORS; ++v) __builtin_memcpy(&line[v], panel + step * COLUMNS + 2 * v * LANES, sizeof line[v]);
#pragma GCC unroll 16
  for (int p = 0; p < ROWS; ++p) {
    uint32_t pair;
    __builtin_memcpy(&pair, rows + p * stride + step, sizeof pair);
    const Words factor = Words{} + pair;
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) add_pairs(sum[p][v], factor, line[v]);
  }
}

// to[p][:] += sum over s of rows[p * stride + s] * panel[s][:], p < ROWS. READ_ONCE: the panel comes from afar, for these rows alone.
template <int ROWS, bool READ_ONCE, class R, class T>
static inline __attribute__((always_inline)) void add_rows(const R* rows, int64_t stride, const T* panel, int64_t steps, float* to) {
  constexpr bool PAIRS = sizeof(R) == 2;
  constexpr int TOGETHER = PAIRS ? 4 : 2;                             // steps of a turn
  constexpr int APART = ROWS * PANEL_VECTORS < (PAIRS ? 16 : 8) ? 2 : 1;  // sums of every other step or pair: enough that do not wait for each other
  Floats sum[APART][ROWS][PANEL_VECTORS] = {};
#pragma GCC unroll 16
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) sum[0][p][v] = load_floats(to + p * COLUMNS + v * LANES);
  int64_t s = 0;
#pragma GCC unroll 1
  for (; s + TOGETHER <= steps; s += TOGETHER) {
    if constexpr (READ_ONCE)
#pragma GCC unroll 16
      for (int64_t byte = 0; byte < TOGETHER * COLUMNS * static_cast<int64_t>(sizeof(T)); byte += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(panel + s * COLUMNS) + AHEAD + byte);
    if constexpr (PAIRS) {
      add_step(sum[0], rows, stride, panel, s);
      add_step(sum[APART - 1], rows, stride, panel, s + 2);
    } else {
      add_step(sum[0], rows, stride, panel, s, false);
      add_step(sum[APART - 1], rows, stride, panel, s, true);
    }
  }
  if constexpr (PAIRS) {
    if (s < steps) add_step(sum[0], rows, stride, panel, s);
  } else {
    if (s < steps) add_step(sum[0], rows, stride, panel, s, false);
  }
#pragma GCC unroll 16
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v)
      store_floats(to + p * COLUMNS + v * LANES, APART > 1 ? sum[0][p][v] + sum[APART - 1][p][v] : sum[0][p][v]);
}

template <int ROWS, bool READ_ONCE, class R, class T>
static __attribute__((noinline)) void add_some_rows(const R* rows, int64_t stride, const T* panel, int64_t steps, float* to, int64_t count) {
  if constexpr (ROWS > 1)
    if (count < ROWS) return add_some_rows<ROWS - 1, READ_ONCE>(rows, stride, panel, steps, to, count);
  add_rows<ROWS, READ_ONCE>(rows, stride, panel, steps, to);
}

// `steps` of a packed panel as lines of f32: where they lie, or in `wide`.
static inline const float* widen_panel(const float* panel, int64_t, float*) { return panel; }
template <class T> static const float* widen_panel(const T* panel, int64_t steps, float* wide) {
  for (int64_t s = 0; s < steps; s += 2)
#pragma GCC unroll 16
    for (int64_t column = 0; column < COLUMNS; column += LANES) {
      store_floats(wide + s * COLUMNS + column, load_step(panel, s, false, column));
      store_floats(wide + (s + 1) * COLUMNS + column, load_step(panel, s, true, column));
    }
  return wide;
}

// A part of a panel as products with such rows take it.
template <class T> static inline const float* part_for(const float*, const T* panel, int64_t steps, float* wide) {
  return widen_panel(panel, steps, wide);
}
static inline const bfloat16* part_for(const bfloat16*, const bfloat16* panel, int64_t, float*) { return panel; }

// to[p][:] += sum over all steps, `count` rows. wide: scratch of DEPTH lines, used where rows are float and T is not.
template <int ROWS, int64_t DEPTH, class R, class T>
static void add_panel(const R* rows, int64_t stride, int64_t count, const T* panel, int64_t steps, float* to, float* wide) {
  constexpr int FEW = ROWS < 2 ? ROWS : 2;
  static_assert(DEPTH % 2 == 0);
  if (count <= FEW) {
    if (count > 0) add_some_rows<FEW, true>(rows, stride, panel, steps, to, count);
    return;
  }
  const int64_t tiles = (count + ROWS - 1) / ROWS;
  for (int64_t s = 0; s < steps; s += DEPTH) {
    const int64_t here = least_of(DEPTH, steps - s);
    const auto part = part_for(rows, panel + s * COLUMNS, here, wide);
    const T* const next = panel + (s + DEPTH) * COLUMNS;  // of this panel, or of the one behind it
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t from = DEPTH * tile / tiles, until = DEPTH * (tile + 1) / tiles, p = tile * ROWS;
      prefetch_bytes(next + from * COLUMNS, (until - from) * COLUMNS * static_cast<int64_t>(sizeof(T)));
      add_some_rows<ROWS, false>(rows + p * stride + s, stride, part, here, to + p * COLUMNS, count - p);
    }
  }
}
