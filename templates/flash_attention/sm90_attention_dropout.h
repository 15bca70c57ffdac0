// Hopper vocabulary of the attention kernels: which weights dropout keeps (docs/semantics.md, "Dropout"), as bits. A Philox number decides of eight keys
// of a row, which lie in several lanes: each lane makes some numbers, eight bits of each, and lanes exchange the bits.
#pragma once
#include "device/attention/attention.h"
#include "device/tile/later.h"
#include "device/sm90/sm90_bits.h"

// For philox(): 64-bit products in C++ are given an addition of 0.
template <uint32_t FACTOR> static inline void multiply_wide(uint32_t x, uint32_t& high, uint32_t& low) {
  asm("{\n.reg .b64 x;\nmul.wide.u32 x, %2, %3;\nmov.b64 {%0, %1}, x;\n}" : "=r"(low), "=r"(high) : "r"(x), "n"(FACTOR));
}
constexpr uint32_t PHILOX_FACTOR0 = 0xd2511f53, PHILOX_FACTOR1 = 0xcd9e8d57;
static inline void philox_round(uint32_t (&words)[4], uint32_t key0, uint32_t key1) {
  uint32_t high0, low0, high1, low1;
  multiply_wide<PHILOX_FACTOR0>(words[0], high0, low0);
  multiply_wide<PHILOX_FACTOR1>(words[2], high1, low1);
  words[0] = high1 ^ words[1] ^ key0, words[1] = low1;
  words[2] = high0 ^ words[3] ^ key1, words[3] = low0;
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

  uint32_t key0(int round) const { return static_cast<uint32_t>(seed) + round * 0x9e3779b9; }
  uint32_t key1(int round) const { return static_cast<uint32_t>(seed >> 32) + round * 0xbb67ae85; }

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
#pragma unroll
    for (int round = 0; round < 10; ++round) philox_round(words, key0(round), key1(round));
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

  // The same from where a RowBits has left it: `from`: that of row 0, of a lane.
  void read(uint32_t from) {
#pragma unroll
    for (int h = 0; h < 2; ++h) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(rows[h]) : "r"(from + 128 * h) : "memory");
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

// KeptWeights of a head's rows by warps that do nothing else: a lane has a row, of which word q is that of the lanes that are q of four above.
// Of the twenty products of a number three are of its chunk alone, which one lane makes for all rows, and two of the head or the row.
template <int N> struct RowBits {
  static constexpr uint32_t CHUNK_BYTES = N / 8 * 16;  // shared memory of a warp
  static constexpr int AT_ONCE = N % 32 == 0 ? 4 : 2;  // numbers
  const Dropout& dropout;
  uint32_t chunks;             // the shared memory
  uint32_t head_low;           // the head's product in round 0
  uint32_t row_high, row_low;  // the row's in round 1

  RowBits(const Dropout& of, uint32_t memory, uint32_t token, uint32_t number) : dropout(of), chunks(memory) {
    uint32_t head_high;
    multiply_wide<PHILOX_FACTOR1>(number, head_high, head_low);
    multiply_wide<PHILOX_FACTOR0>(head_high ^ token ^ dropout.key0(0), row_high, row_low);
  }

  // Of a step's keys; first_key is a multiple of 8. All lanes call it, and have read what was there before.
  void make(uint32_t (&kept)[4], int first_key) const {
    if (lane() < N / 8) share_chunk(first_key / 8 + lane());
    sync_warp();
#pragma unroll
    for (int w = 0; w < 4; ++w) kept[w] = 0;
#pragma unroll 1
    for (int chunk = N / 8 - AT_ONCE; chunk >= 0; chunk -= AT_ONCE) {
      uint32_t words[AT_ONCE][4];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) start(words[i], chunks + 16 * (chunk + i));
#pragma unroll
      for (int round = 3; round < 10; ++round)
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) philox_round(words[i], dropout.key0(round), dropout.key1(round));
#pragma unroll
      for (int i = AT_ONCE - 1; i >= 0; --i)
#pragma unroll
        for (int w = 0; w < 4; ++w) kept[w] = kept[w] * 2 + dropout.compare(words[i][w]);
    }
  }

  // What a chunk's numbers have in common after the third round but for what start() adds.
  void share_chunk(uint32_t chunk) const {
    uint32_t high0, low0, high1, low1, high2, low2;
    multiply_wide<PHILOX_FACTOR0>(chunk, high0, low0);
    multiply_wide<PHILOX_FACTOR1>(high0 ^ dropout.key1(0), high1, low1);
    multiply_wide<PHILOX_FACTOR0>(high1 ^ head_low ^ dropout.key0(1), high2, low2);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 : : "r"(chunks + 16 * lane()), "r"(low0 ^ dropout.key1(1)), "r"(low1 ^ dropout.key0(2)), "r"(high2 ^ dropout.key1(2)), "r"(low2) : "memory");
  }
  // A number's words after the third round.
  void start(uint32_t (&words)[4], uint32_t chunk) const {
    uint32_t shared[4], high;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(shared[0]), "=r"(shared[1]), "=r"(shared[2]), "=r"(shared[3]) : "r"(chunk) : "memory");
    multiply_wide<PHILOX_FACTOR1>(row_high ^ shared[0], high, words[1]);
    words[0] = high ^ shared[1], words[2] = row_low ^ shared[2], words[3] = shared[3];
  }
};
