// CPU vocabulary of a recurrence's gradient on AMX: products of matrices of f32 in memory, of operands in parts of bf16. Of numbers that are bf16 there is
// but one part.
#pragma once
#include "device/matrix/amx_parts.h"

constexpr int64_t PRODUCT_PARTS = 3;

// The scratch of a work item, and where operands are packed: a left one, and SIDE columns of a right one.
struct ProductScratch : Scratch {
  float *left, *right;
  int64_t left_floats, right_floats;  // of a part

  using Scratch::Scratch;
  void find_room(float* room, int64_t values) {
    const int64_t rows = up_to(keys > CHUNK ? keys : CHUNK, SIDE), steps = up_to(values > rows ? values : rows, SIDE);
    left = room, left_floats = rows * steps / 2, right_floats = steps * SIDE / 2;
    right = left + PRODUCT_PARTS * left_floats;
  }
};

// How many parts a matrix has. The last vector of a row may have anything past `columns`.
static int64_t parts_of(const float* a, int64_t a_row, int64_t rows, int64_t columns) {
  Words low = {};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += LANES) low |= reinterpret_cast<Words>(load_some(a + i * a_row + j, columns - j));
  return any(reinterpret_cast<Integers>(low & 0xffff)) ? PRODUCT_PARTS : 1;
}

static void pack_left(Parts to, const float* a, int64_t a_row, int64_t rows, int64_t steps) {
  const int64_t squares = up_to(steps, SIDE) / SIDE;
  const auto part = [&](int64_t i, int64_t s) { return i < rows && s < steps ? load_some(a + i * a_row + s, steps - s) : Floats{}; };
  for (int64_t i = 0; i < up_to(rows, SIDE); ++i)
    for (int64_t s = 0; s < steps; s += SIDE)
      store_line(to + ((i / SIDE * squares + s / SIDE) * PAIR + i % SIDE * LANES), part(i, s), part(i, s + LANES));
}

static void pack_right(Parts to, const float* b, int64_t b_row, int64_t steps) {
  for (int64_t s = 0; s < up_to(steps, SIDE); s += 2) {
    Floats rows[2][2] = {};
    for (int64_t i = 0; i < 2 && s + i < steps; ++i)
      for (int64_t half = 0; half < 2; ++half) rows[i][half] = load_floats(b + (s + i) * b_row + half * LANES);
    store_pair(to + s / SIDE * PAIR, s % SIDE / 2, rows[0], rows[1]);
  }
}

// Few rows stay in registers.
template <bool ADD>
static void multiply(const Scratch& scratch, const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t rows,
                     int64_t columns, int64_t steps) {
  if (rows < SIDE) return in_registers::multiply<ADD>(scratch, a, a_row, b, b_row, c, c_row, rows, columns, steps);
  const ProductScratch& s = static_cast<const ProductScratch&>(scratch);
  const int64_t squares = up_to(steps, SIDE) / SIDE;
  const Parts left{s.left, parts_of(a, a_row, rows, steps), s.left_floats}, right{s.right, parts_of(b, b_row, steps, columns), s.right_floats};
  pack_left(left, a, a_row, rows, steps);
  for (int64_t j = 0; j < columns; j += SIDE) {
    pack_right(right, b + j, b_row, steps);
    for (int64_t i = 0; i < rows; i += SIDE) {
      alignas(64) float sums[SIDE * SIDE];
      float* to = c + i * c_row + j;
      const bool whole = i + SIDE <= rows;
      if (ADD && whole)
        Square::load_rows(to, c_row);
      else
        Square::zero();
      multiply_steps(left + i / SIDE * squares * PAIR, right, squares);
      if (whole) {
        Square::store_rows(to, c_row);
        continue;
      }
      Square::store_rows(sums, SIDE);
      for (int64_t p = 0; p < rows - i; ++p)
        for (int64_t x = 0; x < SIDE; x += LANES) {
          const Floats sum = load_floats(sums + p * SIDE + x);
          store_floats(to + p * c_row + x, ADD ? load_floats(to + p * c_row + x) + sum : sum);
        }
    }
  }
}
