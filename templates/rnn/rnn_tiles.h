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

// A tile of 16 rows times a pair of tiles of columns: sums in tiles FIRST and FIRST + 1.
template <int FIRST> static inline void begin_pair(const float* to, bool fresh) {
  constexpr int64_t LINE = 4 * COLUMNS;
  if (fresh)
    amx_zero<FIRST>(), amx_zero<FIRST + 1>();
  else
    amx_load<FIRST>(to, LINE), amx_load<FIRST + 1>(to + 16, LINE);
}
template <int FIRST> static inline void multiply_pair(const float* columns) {
  amx_load<7>(columns, 64);
  amx_multiply<FIRST, 6, 7>();
  amx_load<7>(columns + TILE_WORDS, 64);
  amx_multiply<FIRST + 1, 6, 7>();
}
template <int FIRST> static inline void end_pair(float* to) { amx_store<FIRST>(to, 4 * COLUMNS), amx_store<FIRST + 1>(to + 16, 4 * COLUMNS); }

// 16 rows times PAIRS pairs of tiles of columns, `pair` floats apart: each tile of rows is read once.
template <int PAIRS> static inline void multiply_tile(const float* rows, const float* columns, int64_t pair, int64_t blocks, float* to, bool fresh) {
  static_assert(PAIRS >= 1 && PAIRS <= 3);
  begin_pair<0>(to, fresh);
  if constexpr (PAIRS > 1) begin_pair<2>(to + 32, fresh);
  if constexpr (PAIRS > 2) begin_pair<4>(to + 64, fresh);
  for (int64_t block = 0; block < blocks; ++block, rows += 2 * TILE_WORDS, columns += 2 * TILE_WORDS) {
    amx_load<6>(rows, 64);
    multiply_pair<0>(columns);
    if constexpr (PAIRS > 1) multiply_pair<2>(columns + pair);
    if constexpr (PAIRS > 2) multiply_pair<4>(columns + 2 * pair);
  }
  end_pair<0>(to);
  if constexpr (PAIRS > 1) end_pair<2>(to + 32);
  if constexpr (PAIRS > 2) end_pair<4>(to + 64);
}

// to[p][:] = (fresh), or += sum over all steps of rows `first` + p, p < count; `first` begins a pair of tiles, and `to` has room for whole pairs.
static void multiply_tiled(const bfloat16* rows, int64_t first, int64_t count, const bfloat16* panel, int64_t steps, float* to, bool fresh) {
$if arch.bf16_pairs
  constexpr int PAIRS = COLUMNS / 32;
$else
  constexpr int PAIRS = COLUMNS / 32, AT_ONCE = PAIRS % 3 == 0 ? 3 : PAIRS % 2 == 0 ? 2 : 1;
$end
  const int64_t pair = PAIR_ROWS * whole_tiles(steps) / 2, blocks = whole_tiles(steps) / TILE_STEPS;  // floats of a pair of tiles of rows, or of columns
  const float *const left = reinterpret_cast<const float*>(rows) + first / PAIR_ROWS * pair, *const right = reinterpret_cast<const float*>(panel);
$if arch.bf16_pairs
  for (int64_t of = 0; of < PAIRS; ++of)
    for (int64_t p = 0; p < count; p += PAIR_ROWS)
      amx_tile_product<COLUMNS>(left + p / PAIR_ROWS * pair, 2 * TILE_WORDS, right + of * pair, blocks, to + p * COLUMNS + 32 * of, fresh,
                                least_of(PAIR_ROWS, count - p));
$else
  const int64_t whole = count % PAIR_ROWS > 0 && count % PAIR_ROWS <= 16 ? count / PAIR_ROWS * PAIR_ROWS : count;
  for (int64_t of = 0; of < PAIRS; ++of)
    for (int64_t p = 0; p < whole; p += PAIR_ROWS)
      amx_tile_product<COLUMNS>(left + p / PAIR_ROWS * pair, 2 * TILE_WORDS, right + of * pair, blocks, to + p * COLUMNS + 32 * of, fresh);
  if (whole < count)
    for (int64_t of = 0; of < PAIRS; of += AT_ONCE)
      multiply_tile<AT_ONCE>(left + whole / PAIR_ROWS * pair, right + of * pair, pair, blocks, to + whole * COLUMNS + 32 * of, fresh);
$end
}
