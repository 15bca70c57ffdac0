// Hopper vocabulary of the attention kernels: which weights dropout keeps (SEMANTICS, section 0), as bits. A Philox number decides of eight keys
// of a row, which lie in several lanes: each lane makes some numbers, eight bits of each, and lanes exchange the bits.
#pragma once
#include "device/attention.h"
#include "device/later.h"
#include "device/sm90_bits.h"

// What a call says of dropout.
struct Dropout {
  static constexpr uint32_t TOPS = 0x80008000;
  uint64_t seed;
  uint32_t threshold;  // a weight is kept whose 16 bits are not below it; in both halves

  Dropout(float of_65536, int64_t seed_word) : seed(static_cast<uint64_t>(seed_word)) {
    const uint32_t half = of_65536 < 65535 ? static_cast<uint32_t>(of_65536) : 65535;  // 65536: what is kept counts 0
    threshold = half << 16 | half;
  }
  // What takes a weight that is kept to what it counts.
  static float factor(float of_65536) { return of_65536 < 65536 ? 65536 / (65536 - of_65536) : 0; }

  // Bits 15 and 31: whether the halves of x are not below the threshold.
  uint32_t compare(uint32_t x) const {
    const uint32_t rest = (x | TOPS) - (threshold & ~TOPS);  // the same without the top bits, and no half takes from the other
    return (x & ~threshold) | (~(x ^ threshold) & rest);
  }
  // Which of keys 8 * chunk + 2 w + i (w: 0 to 3, i: 0 or 1) are kept: bits 12 + w + 16 i; the others mean nothing. `number`: of the batch's
  // (or sequence's) row and the query head.
  uint32_t keep(uint32_t chunk, uint32_t token, uint32_t number) const {
    uint32_t words[4] = {chunk, token, number, 0};
    philox(words, seed);
    const uint32_t upper = choose_bits(TOPS, compare(words[3]), compare(words[2]) >> 1);
    const uint32_t lower = choose_bits(TOPS, compare(words[1]), compare(words[0]) >> 1);
    return choose_bits(0xc000c000, upper, lower >> 2);
  }
};

// Which weights are kept of a lane's N keys of rows h = 0 and 1 (sm90_attention_rows.h): of element 4 c + 2 h + i bit FIRST + c + 16 i of rows[h].
// Made while products run, each by the lane of four that has its turn: (made here.) N <= 128.
template <int N> struct KeptWeights {
  static constexpr int TURNS = (N + 31) / 32, FIRST = 16 - 4 * TURNS;
  static_assert(N <= 128);
  uint32_t rows[2];

  // first_key: of the step, a multiple of 8; token: of row 0, row 1 is 8 later.
  void find(const Dropout& dropout, int first_key, int token, uint32_t number) {
    rows[0] = rows[1] = 0;
#pragma unroll 1
    for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        rows[h] = choose_bits(0xf000f000, dropout.keep(first_key / 8 + 4 * turn + lane() % 4, token + 8 * h, number), rows[h] >> 4);
    }
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
          if (!(rows[h] >> (FIRST + c + 16 * i) & 1)) s[4 * c + 2 * h + i] = 0;
  }
};
