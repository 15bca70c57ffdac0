// CPU vocabulary: 32 numbers of f8_e4m3, from any address, as bf16, to any. Exact.
#pragma once
#include "device/number/float8.h"
#include "device/number/widen.h"

typedef uint16_t NarrowBits __attribute__((vector_size(64)));  // of 32 bf16

static inline void widen_32(const float8_e4m3* from, bfloat16* to) {
  typedef short Shorts __attribute__((vector_size(64)));
#if defined(__AVX512BW__) && !defined(__clang__)  // GCC 12 would widen the halves apart
  typedef char Chars __attribute__((vector_size(32)));
  Chars bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  const Shorts wide = __builtin_ia32_pmovsxbw512_mask(bytes, Shorts{}, -1);
#else
  typedef int8_t Chars __attribute__((vector_size(32)));
  Chars bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  const Shorts wide = __builtin_convertvector(bytes, Shorts);
#endif
  // Sign, exponent and mantissa go where those of bf16 are, and 120 is added to the exponent; numbers without an exponent are in a table.
  const NarrowBits bits = reinterpret_cast<NarrowBits>(wide), moved = (bits << 4) & 0x87f0, magnitude = bits & 0x7f;
  const NarrowBits table = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
#ifdef __clang__
  NarrowBits small;
  for (int i = 0; i < 32; ++i) small[i] = table[magnitude[i] & 7];
#else
  const NarrowBits small = __builtin_shuffle(table, magnitude & 7);
#endif
  const NarrowBits number = magnitude < 8 ? small | (moved & 0x8000) : moved + 0x3c00;
  const NarrowBits result = magnitude == 0x7f ? number | 0x7fc0 : number;
  __builtin_memcpy(to, &result, sizeof result);
}
