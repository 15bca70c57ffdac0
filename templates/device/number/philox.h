// Vocabulary of every backend: the random-number generator Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once
#include "device/view.h"

static inline void multiply_wide(uint32_t a, uint32_t factor, uint32_t& high, uint32_t& low) {
#ifdef __CUDA_ARCH__
  uint64_t product;  // NVRTC makes three additions of 0 beside the multiplication
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(factor));
#else
  const uint64_t product = static_cast<uint64_t>(a) * factor;
#endif
  high = static_cast<uint32_t>(product >> 32);
  low = static_cast<uint32_t>(product);
}

// U: uint32_t for one counter, Words for LANES of them. The counter becomes the four output words.
template <class U> static inline void philox(U (&counter)[4], uint64_t seed) {
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    U high0, low0, high1, low1;
    multiply_wide(counter[0], 0xd2511f53, high0, low0);
    multiply_wide(counter[2], 0xcd9e8d57, high1, low1);
    counter[0] = high1 ^ counter[1] ^ key0;
    counter[1] = low1;
    counter[2] = high0 ^ counter[3] ^ key1;
    counter[3] = low0;
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}

// The 16-bit lane of key position j among the eight of counter j >> 3: low half of each word first.
template <class U> static inline U dropout_lane(const U (&words)[4], int64_t j) { return (words[(j & 7) >> 1] >> (16 * (j & 1))) & 0xffff; }
