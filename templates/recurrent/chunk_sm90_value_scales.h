// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: powers of two that keep a state's rows of values within the
// range of halves. Two halves are 22 bits of a number, but only between 2^-14 and 2^16. So a state is kept times a power of two for each value, as is
// what its tokens write. It changes when the row's largest number has left a window.
#pragma once

constexpr int WINDOW_MIDDLE = -3;  // where a row's largest number is moved to: an exponent

static inline float power_of(int exponent) { return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23); }
static inline float inverse_of_power(float x) { return __builtin_bit_cast(float, 0x7f000000u - __builtin_bit_cast(uint32_t, x)); }
static inline int exponent_of(float x) { return static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 23 & 255) - 127; }  // -127: 0; 128: no number
static inline float absolute(float x) { return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) & 0x7fffffffu); }

// Bits of a thread's two rows that tell their sizes, of pairs of halves: 0x4000 of one that has a number of 2 or more, 0x2000 or that of one that
// has a number of 2^-7 or more. The second row's are the upper ones.
constexpr uint32_t LARGE_ROWS = 0x40004000, FIRST_ROW = 0x6000, SECOND_ROW = 0x60000000;
template <int N> static inline uint32_t sizes_of_rows(const uint32_t (&a)[N][4]) {
  uint32_t rows[2] = {};
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int i = 0; i < 2; ++i) rows[i] |= a[k][i] | a[k][2 + i];
  return ((rows[0] | rows[0] >> 16) & FIRST_ROW) | ((rows[1] | rows[1] << 16) & SECOND_ROW);
}
// Of whole rows, of which four lanes have parts.
static inline uint32_t of_whole_rows(uint32_t sizes) {
  sizes |= shuffle_xor(sizes, 1);
  return sizes | shuffle_xor(sizes, 2);
}
static inline bool has_large_rows(uint32_t sizes) { return any_in_warp((sizes & LARGE_ROWS) != 0); }
static inline bool has_small_rows(uint32_t whole) { return any_in_warp((whole & FIRST_ROW) == 0 || (whole & SECOND_ROW) == 0); }

static inline int bounded(int x, int least, int most) { return x < least ? least : x > most ? most : x; }

struct ValueScales {
  uint32_t biased = 0x7f007f;  // exponents of what a thread's rows are times, as a float has them; in one word, for the sake of registers

  int exponent(int row) const { return static_cast<int>(biased >> 16 * row & 255) - 127; }
  float of(int row) const { return power_of(exponent(row)); }
  float back(int row) const { return power_of(-exponent(row)); }

  // The largest of a row's numbers, of which this thread has these.
  template <int N> static void add_largest(float (&largest)[2], const float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) largest[i % 4 / 2] = larger_of(largest[i % 4 / 2], absolute(x[i]));
  }
  template <int N> static void multiply(float (&x)[N], const float (&by)[2]) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] *= by[i % 4 / 2];
  }
  // Moves rows whose largest numbers are these to the window's middle. `by`: what their numbers are to be multiplied by.
  void choose(float (&by)[2], float (&largest)[2]) {
    uint32_t chosen = 0;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      largest[row] = larger_of(largest[row], shuffle_xor(largest[row], 1));
      largest[row] = larger_of(largest[row], shuffle_xor(largest[row], 2));
      const int now = exponent(row), of_largest = exponent_of(largest[row]);
      int next = now + WINDOW_MIDDLE - of_largest;
      next = bounded(bounded(next, now - 126, now + 126), -120, 120);
      if (of_largest == -127 || of_largest == 128) next = now;
      by[row] = power_of(next - now), chosen |= static_cast<uint32_t>(next + 127) << 16 * row;
    }
    biased = chosen;
  }
  // The same of rows of a state, which are moved.
  template <int N> void move(float (&state)[N]) {
    float largest[2] = {}, by[2];
    add_largest(largest, state);
    choose(by, largest);
    multiply(state, by);
  }
};
