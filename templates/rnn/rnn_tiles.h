// CPU vocabulary: rows of bf16 times a packed panel of weights on AMX tiles. A template defines COLUMNS, a panel's, before.
//
// Rows lie as left operands: of each PAIR_ROWS rows, for each TILE_STEPS steps two tiles of 16 lines. A packed panel: of each 32 columns,
// for each TILE_STEPS steps two tiles, right operands. Both have whole tiles of steps, zeros where there is none.
#pragma once
#include "device/matrix/product_amx.h"
#include "rnn/rnn_some.h"

constexpr int64_t PAIR_ROWS = 32, PAIR_ELEMENTS = PAIR_ROWS * TILE_STEPS;
static_assert(COLUMNS % 32 == 0, "columns come in pairs of tiles");

static inline int64_t whole_tiles(int64_t count) { return (count + 31) / 32 * 32; }

// Where element `step` of a row of `steps` lies; those of the same TILE_STEPS steps lie side by side.
static inline bfloat16* tiled_at(bfloat16* rows, int64_t row, int64_t step, int64_t steps) {
  return rows + row / PAIR_ROWS * PAIR_ROWS * whole_tiles(steps) + step / TILE_STEPS * PAIR_ELEMENTS + row % PAIR_ROWS * TILE_STEPS + step % TILE_STEPS;
}

static inline void copy_tiled_row(bfloat16* rows, int64_t row, const bfloat16* from, int64_t steps) {
  for (int64_t s = 0; s < steps; s += TILE_STEPS) {
    const Floats line = load_line(from + s, steps - s);
    __builtin_memcpy(tiled_at(rows, row, s, steps), &line, sizeof line);
  }
}

// to[p][:] = (fresh), or += sum over all steps of rows `first` + p, p < count; `first` begins a pair of tiles, and `to` has room for whole pairs.
static void multiply_tiled(const bfloat16* rows, int64_t first, int64_t count, const bfloat16* panel, int64_t steps, float* to, bool fresh) {
  const int64_t pair = PAIR_ROWS * whole_tiles(steps);  // elements of a pair of tiles of rows, or of columns
  for (int64_t column = 0; column < COLUMNS; column += 32)
    for (int64_t p = 0; p < count; p += PAIR_ROWS)
      amx_tile_product<COLUMNS>(reinterpret_cast<const float*>(rows + (first + p) / PAIR_ROWS * pair), 2 * TILE_WORDS,
                                reinterpret_cast<const float*>(panel + column / 32 * pair), whole_tiles(steps) / TILE_STEPS, to + p * COLUMNS + column, fresh);
}
