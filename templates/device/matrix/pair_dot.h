// CPU vocabulary: dot products of pairs of bf16. Compiled for a processor without AVX-512's instruction it is the same sum by multiply-adds.
#pragma once
#include "device/number/widen.h"

// sum += the products of two words' lower and upper halves, which are bf16.
static inline void add_pairs(Floats& sum, Words a, Words b) {
#ifdef __AVX512BF16__
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
  sum += reinterpret_cast<Floats>(a << 16) * reinterpret_cast<Floats>(b << 16);
  sum += reinterpret_cast<Floats>(a & 0xffff0000) * reinterpret_cast<Floats>(b & 0xffff0000);
#endif
}
