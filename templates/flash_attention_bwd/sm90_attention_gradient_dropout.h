// Hopper vocabulary of the attention kernels' gradients: which weights dropout keeps (docs/semantics.md, "Dropout"), as bits. A Philox number decides of
// eight keys of a query, which lie in several lanes: each lane makes some numbers, eight bits of each, and lanes exchange the bits.
#pragma once
#include "device/attention/attention.h"
#include "device/tile/later.h"
#include "device/sm90/sm90_bits.h"

// What a call says of dropout. (The forward's, sm90_attention_dropout.h, finds the same bits by other instructions.)
struct Dropout {
  static constexpr uint32_t TOPS = 0x80008000;
  uint64_t seed;
  uint32_t threshold;  // a weight is kept whose 16 bits are not below it; in both halves

  Dropout(float of_65536, int64_t seed_word) : seed(static_cast<uint64_t>(seed_word)) {
    const uint32_t half = of_65536 < 65535 ? static_cast<uint32_t>(of_65536) : 65535;  // 65536: what is kept counts 0
    threshold = half << 16 | half;
  }

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

// Which weights are kept of a lane's scores (sm90_attention_weights.h): those that it drops are made negative, and count as 0 in the sums of dv.
template <int ROWS> struct KeptScores {
  static constexpr int WORDS = (ROWS + 63) / 64;  // of 64 queries
  uint32_t of[WORDS];

  // first_key: of the warp's 16, a multiple of 8; number: of the batch's (or sequence's) row and the query head. Each lane makes numbers for 8 of
  // its neighbours' keys, and 8 lanes exchange bits: then bit 8 h + 4 i + j / 2 + 16 (j % 2) is element 4 j + 2 h + i.
  void find(const Dropout& dropout, uint32_t first_key, uint32_t first_query, uint32_t number) {
    const uint32_t thread = later(thread_x()), query = first_query + thread % WARP / 4 * 8 + thread % 4 * 2;
#pragma unroll
    for (int word = 0; word < WORDS; ++word) {
      uint32_t bits = 0;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i)
        bits = choose_bits(0xf000f000, dropout.keep(first_key / 8 + i / 2, query + 64 * word + i % 2, number), bits >> 4);
      of[word] = exchange_bits<16, 2>(exchange_bits<8, 1>(exchange_bits<4, 16>(bits)));
    }
  }
  void mark(float (&s)[ROWS / 2]) const {
#pragma unroll
    for (int e = 0; e < ROWS / 2; ++e) {
      const int j = e / 4, bit = e / 2 % 2 * 8 + e % 2 * 4 + j % 8 / 2 + j % 2 * 16;
      if (!(of[j / 8] >> bit & 1)) s[e] = -s[e];
    }
  }
};
