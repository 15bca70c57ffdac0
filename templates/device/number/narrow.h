// CPU vocabulary: a vector of f32 stored as LANES elements of any type, to any address. Rounds to nearest even; NaN stays NaN.
#pragma once
#include "device/number/widen.h"

static inline void store_elements(float* to, Floats v) { __builtin_memcpy(to, &v, sizeof v); }

static inline void store_elements(bfloat16* to, Floats v) {
  const Words bits = reinterpret_cast<Words>(v);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, quiet = (bits >> 16) | 0x40;
  const Halfwords narrow = __builtin_convertvector(v == v ? rounded : quiet, Halfwords);
  __builtin_memcpy(to, &narrow, sizeof narrow);
}

static inline void store_elements(half* to, Floats v) {
#if defined(__AVX512F__) && !defined(__clang__)
  typedef short Shorts __attribute__((vector_size(32)));
  const Shorts narrow = __builtin_ia32_vcvtps2ph512_mask(v, 0, Shorts{}, -1);  // 0: to nearest even
  __builtin_memcpy(to, &narrow, sizeof narrow);
#elif defined(__AVX2__) && defined(__F16C__) && !defined(__AVX512F__)
  const auto narrow = __builtin_ia32_vcvtps2ph256(v, 0);
  __builtin_memcpy(to, &narrow, sizeof narrow);
#elif defined(__aarch64__)
  typedef half Halves __attribute__((vector_size(LANES * 2)));
  const Halves narrow = __builtin_convertvector(v, Halves);
  __builtin_memcpy(to, &narrow, sizeof narrow);
#else
  for (int lane = 0; lane < LANES; ++lane) to[lane] = from_float<half>(v[lane]);
#endif
}

// The first `count` lanes only.
template <class T> static inline void store_some(T* to, Floats v, int64_t count) {
  if (count >= LANES) return store_elements(to, v);
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(v[i]);
}
