// GPU vocabulary: means over blocks in 16-bit elements, as several terms a number, so that products of them are as exact as f32. Part of a
// template, which has defined Element before.
#pragma once
#include "device/gpu.h"

// bf16: three terms of 8 bits; f16: two of 11, the second one times FACTOR, since it would be too small otherwise.
constexpr bool HAS_WIDE_EXPONENTS = sizeof(Element) == 2 && ${E == 'bf16' ? 'true' : 'false'};
constexpr int TERMS = HAS_WIDE_EXPONENTS ? 3 : 2;
constexpr float FACTOR = HAS_WIDE_EXPONENTS ? 1 : 4096;

// `to[i * pitch]`: term i of x.
static inline void store_terms(Element* to, int64_t pitch, float x) {
#pragma unroll
  for (int i = 0; i < TERMS; ++i) {
    const Element term = from_float<Element>(x);
    to[i * pitch] = term;
    x = (x - to_float(term)) * FACTOR;
  }
}
