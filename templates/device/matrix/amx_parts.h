// CPU vocabulary: products of f32 on AMX tiles, of operands in parts of bf16, whose sum has two or three times the digits. Squares of SIDE x SIDE sums.
#pragma once
#include "device/matrix/amx_block.h"

typedef AmxBlock<2, 2> Square;
constexpr int64_t SIDE = 32, PAIR = 2 * TILE_WORDS;  // words of two tiles, a square's operand of SIDE steps

// An operand as a sum of `count` parts, `apart` floats from one to the next: bf16, bf16 of what is left, and so on.
struct Parts {
  float* data;
  int64_t count, apart;

  float* operator[](int64_t i) const { return data + i * apart; }
  Parts operator+(int64_t floats) const { return {data + floats, count, apart}; }
  Parts first(int64_t most) const { return {data, most < count ? most : count, apart}; }
};

static inline void multiply_steps(const float* left, const float* right, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) Square::multiply(left + i * PAIR, right + i * PAIR);
}
// Of all parts but for products of small ones.
static inline void multiply_steps(Parts left, Parts right, int64_t steps) {
  const int64_t most = left.count > right.count ? left.count : right.count;
  for (int64_t i = 0; i < left.count; ++i)
    for (int64_t j = 0; j < right.count && i + j < most; ++j) multiply_steps(left[i], right[j], steps);
}

// The bf16 of x, rounded half up, as f32; NaN of any bits stays NaN.
static inline Floats high_part(Floats x) {
  const Words rounded = (reinterpret_cast<Words>(x) + 0x8000) & 0xffff0000;
  return reinterpret_cast<Floats>(x == x ? rounded : Words{} + 0x7fc00000);
}

// What is left of x: nothing of infinity and NaN, which are in the high part.
static inline Floats low_part(Floats x, Floats high) {
  const Floats left = x - high;
  return left == left ? left : Floats{};
}

// SIDE numbers as a line of a left operand.
static inline void store_line(Parts to, Floats first, Floats second) {
  for (int64_t i = 0; i < to.count; ++i) {
    const Floats high[2] = {high_part(first), high_part(second)};
    store_floats(to[i], line_of_bf16(high[0], high[1]));
    first = low_part(first, high[0]), second = low_part(second, high[1]);
  }
}

// SIDE columns of steps 2 p and 2 p + 1 as line p of a right operand.
static inline void store_pair(Parts to, int64_t p, const Floats (&even)[2], const Floats (&odd)[2]) {
  for (int half = 0; half < 2; ++half) {
    Floats left[2] = {even[half], odd[half]};
    for (int64_t i = 0; i < to.count; ++i) {
      const Floats high[2] = {high_part(left[0]), high_part(left[1])};
      store_floats(to[i] + half * TILE_WORDS + p * LANES, pair_of_bf16(high[0], high[1]));
      left[0] = low_part(left[0], high[0]), left[1] = low_part(left[1], high[1]);
    }
  }
}
