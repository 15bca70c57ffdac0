// CPU vocabulary of ssd_bwd in chunks: products of a chunk of tokens in register tiles, with states as they lie in memory, features of x by columns.
#pragma once
#include "recurrent/cpu_gradient_rows.h"
#include "recurrent/cpu_pairs.h"

constexpr int FEW_ROWS = ROWS / 3;  // of the tiles of what ROWS leave

// Tiles of a b, from what start(sum, row, column) puts into them to what finish(sum, row, column) does with them: `rows` a multiple of FEW_ROWS,
// columns up to whole vectors.
template <class Start, class Finish>
static inline __attribute__((always_inline)) void multiply(const float* a, int64_t a_row, const float* b, int64_t b_row, int64_t rows,
                                                           int64_t columns, int64_t steps, const Start& start, const Finish& finish) {
  const auto tile = [&]<int COUNT, int WIDE>(RegisterTile<COUNT, WIDE>&& sum, int64_t i, int64_t j) __attribute__((always_inline)) {
    start(sum, i, j);
    add_product(sum, a + i * a_row, a_row, b + j, b_row, steps);
    finish(sum, i, j);
  };
  for (int64_t j = 0; j < columns; j += PANEL) {
    const bool wide = j + LANES < columns;
    int64_t i = 0;
    for (; i + ROWS <= rows; i += ROWS)
      if (wide) tile(RegisterTile<ROWS, VECTORS>{}, i, j);
      else tile(RegisterTile<ROWS, 1>{}, i, j);
    for (; i < rows; i += FEW_ROWS)
      if (wide) tile(RegisterTile<FEW_ROWS, VECTORS>{}, i, j);
      else tile(RegisterTile<FEW_ROWS, 1>{}, i, j);
  }
}

// For each vector of a tile: what(vector, row, column).
template <int COUNT, int WIDE, class What>
static inline __attribute__((always_inline)) void each(Floats (&sum)[COUNT][WIDE], int64_t i, int64_t j, const What& what) {
#pragma GCC unroll 16
  for (int p = 0; p < COUNT; ++p)
#pragma GCC unroll 4
    for (int x = 0; x < WIDE; ++x) what(sum[p][x], i + p, j + x * LANES);
}

// A place of rows `row` floats apart.
struct Rectangle {
  float* data;
  int64_t row;
  float* at(int64_t i, int64_t j) const { return data + i * row + j; }
};

// c = a b, or c += a b.
template <bool ADD>
static __attribute__((noinline)) void multiply(Rectangle a, Rectangle b, Rectangle c, int64_t rows, int64_t columns, int64_t steps) {
  multiply(a.data, a.row, b.data, b.row, rows, columns, steps,
           [&](auto& sum, int64_t i, int64_t j) {
             each(sum, i, j, [&](Floats& x, int64_t r, int64_t s) { x = ADD ? load_floats(c.at(r, s)) : Floats{}; });
           },
           [&](auto& sum, int64_t i, int64_t j) {
             each(sum, i, j, [&](Floats& x, int64_t r, int64_t s) { store_floats(c.at(r, s), x); });
           });
}

// to += a b, and dots[row] += row . (a b): as vectors to be summed.
static __attribute__((noinline)) void multiply_and_meet(Rectangle a, Rectangle b, Rectangle to, Rectangle met, Floats* dots, int64_t rows,
                                                        int64_t columns, int64_t steps) {
  multiply(a.data, a.row, b.data, b.row, rows, columns, steps,
           [&](auto& sum, int64_t i, int64_t j) { each(sum, i, j, [](Floats& x, int64_t, int64_t) { x = Floats{}; }); },
           [&](auto& sum, int64_t i, int64_t j) {
             each(sum, i, j, [&](Floats& x, int64_t r, int64_t s) {
               dots[r] += x * load_floats(met.at(r, s));
               store_floats(to.at(r, s), load_floats(to.at(r, s)) + x);
             });
           });
}

// state = what `decay` leaves of it + a b. The product is summed by itself: so a long sequence's state is rounded once a chunk.
static __attribute__((noinline)) void pass_state(Rectangle state, const SplitExp& decay, Rectangle a, Rectangle b, int64_t rows, int64_t columns,
                                                 int64_t steps) {
  multiply(a.data, a.row, b.data, b.row, rows, columns, steps,
           [&](auto& sum, int64_t i, int64_t j) { each(sum, i, j, [](Floats& x, int64_t, int64_t) { x = Floats{}; }); },
           [&](auto& sum, int64_t i, int64_t j) {
             each(sum, i, j, [&](Floats& x, int64_t r, int64_t s) {
               const Floats was = load_floats(state.at(r, s));
               store_floats(state.at(r, s), was * decay.base + (was * decay.rest + x));
             });
           });
}

// The sum of products of two states' numbers.
static double inner_product(Rectangle a, Rectangle b, int64_t rows, int64_t columns) {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    Floats of_row = {};
    for (int64_t j = 0; j < columns; j += LANES) of_row += load_floats(a.at(i, j)) * load_floats(b.at(i, j));
    sum += sum_of(of_row);
  }
  return sum;
}

// to[j][i] = from[i][j]: rows of `to` have whole vectors of `rows`, zeros after the last.
static __attribute__((noinline)) void turn(Rectangle from, Rectangle to, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += LANES)
    for (int64_t j = 0; j < columns; j += LANES) {
      Floats block[LANES];
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < LANES; ++lane) block[lane] = i + lane < rows ? load_floats(from.at(i + lane, j)) : Floats{};
      transpose(block);
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < LANES; ++lane)
        if (j + lane < columns) store_floats(to.at(j + lane, i), block[lane]);
    }
}

// to = from, each row times its factor, or each column.
static void scale_rows(Rectangle from, Rectangle to, const float* factors, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += LANES) store_floats(to.at(i, j), load_floats(from.at(i, j)) * factors[i]);
}
static void scale_columns(Rectangle from, Rectangle to, const float* factors, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += LANES) store_floats(to.at(i, j), load_floats(from.at(i, j)) * load_floats(factors + j));
}
