// Hopper vocabulary of the attention kernels: which weights dropout keeps (SEMANTICS, section 0), as bits. A Philox number decides of eight keys
// of a row, which lie in several lanes: each lane makes some numbers, eight bits of each, and lanes exchange the bits.
#pragma once
#include "device/attention.h"
#include "device/later.h"
#include "device/sm90_bits.h"

// For philox(): 64-bit products in C++ are given an addition of 0.
template <uint32_t FACTOR> static inline void multiply_wide(uint32_t x, uint32_t& high, uint32_t& low) {
  asm("{\n.reg .b64 x;\nmul.wide.u32 x, %2, %3;\nmov.b64 {%0, %1}, x;\n}" : "=r"(low), "=r"(high) : "r"(x), "n"(FACTOR));
}
static inline void philox_words(uint32_t (&words)[4], uint64_t seed) {
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    uint32_t high0, low0, high1, low1;
    multiply_wide<0xd2511f53>(words[0], high0, low0);
    multiply_wide<0xcd9e8d57>(words[2], high1, low1);
    words[0] = high1 ^ words[1] ^ key0, words[1] = low1;
    words[2] = high0 ^ words[3] ^ key1, words[3] = low0;
    key0 += 0x9e3779b9, key1 += 0xbb67ae85;
  }
}

// What a call says of dropout; some weights are dropped.
struct Dropout {
  uint64_t seed;
  uint32_t limit;     // in both halves of a word: a weight is kept whose 16 bits are above it
  uint32_t negative;  // -limit, likewise

  // of_65536: of that many weights so many are dropped, 1 or more; 65536: then those that are kept count 0.
  Dropout(float of_65536, int64_t seed_word) : seed(static_cast<uint64_t>(seed_word)) {
    const uint32_t half = (of_65536 < 65535 ? static_cast<uint32_t>(of_65536) : 65535) - 1;
    limit = half << 16 | half;
    negative = (-half & 0xffff) << 16 | (-half & 0xffff);
  }

  // Bits 0 and 16: whether the halves of x are above the limit.
  uint32_t compare(uint32_t x) const {
    uint32_t y;
    asm("{\n.reg .b32 x, y;\nmax.u16x2 x, %1, %2;\nadd.u16x2 y, x, %3;\nmin.u16x2 %0, y, %4;\n}"
        : "=r"(y) : "r"(x), "r"(limit), "r"(negative), "r"(0x00010001));
    return y;
  }
  // Which of keys 8 * chunk + 2 w + i (w: 0 to 3, i: 0 or 1) are kept: bit w + 16 i; what `before` has comes before them. `number`: of the
  // batch's (or sequence's) row and the query head.
  uint32_t keep(uint32_t before, uint32_t chunk, uint32_t token, uint32_t number) const {
    uint32_t words[4] = {chunk, token, number, 0};
    philox_words(words, seed);
#pragma unroll
    for (int w = 3; w >= 0; --w) before = before * 2 + compare(words[w]);
    return before;
  }
  // One key, alone.
  bool keeps(int key, int token, uint32_t number) const { return keep(0, key / 8, token, number) >> key % 8 / 2 >> key % 2 * 16 & 1; }
};

// Which weights are kept of a lane's N keys of rows h = 0 and 1 (sm90_attention_rows.h): of element 4 c + 2 h + i bit c + 16 i of rows[h].
// Needs no scores, and so is made while products run; one lane of four makes each number.
template <int N> struct KeptWeights {
  static_assert(N <= 128);
  uint32_t rows[2];

  // first_key: of the step, a multiple of 8; token: of row 0, row 1 is 8 later.
  void find(const Dropout& dropout, int first_key, int token, uint32_t number) {
    rows[0] = rows[1] = 0;
#pragma unroll 1
    for (int turn = (N + 31) / 32 - 1; turn >= 0; --turn)
#pragma unroll
      for (int h = 0; h < 2; ++h) rows[h] = dropout.keep(rows[h], first_key / 8 + 4 * turn + lane() % 4, token + 8 * h, number);
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h] = exchange_bits<2, 2>(exchange_bits<1, 1>(rows[h]));
  }

  // Weights that are not kept become 0.
  void drop(float (&s)[N / 2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int c = 0; c < N / 8; ++c)
          if (!(rows[h] >> (c + 16 * i) & 1)) s[4 * c + 2 * h + i] = 0;
  }
};
