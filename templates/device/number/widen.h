// CPU vocabulary: LANES elements of any type, from any address, as a vector of f32. GCC vector extensions, no intrinsics header.
#pragma once
#include "device/cpu.h"

#if defined(__AVX512F__)
constexpr int64_t LANES = 16;
#elif defined(__AVX2__)
constexpr int64_t LANES = 8;
#else
constexpr int64_t LANES = 4;
#endif

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef uint16_t Halfwords __attribute__((vector_size(LANES * 2)));

static inline Floats load_floats(const float* from) {
  Floats v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

static inline void store_floats(float* to, Floats v) { __builtin_memcpy(to, &v, sizeof v); }

static inline Floats load_floats(const bfloat16* from) {
  Halfwords v;
  __builtin_memcpy(&v, from, sizeof v);
#if defined(__AVX512F__) && !defined(__clang__)  // GCC 12 would widen the two halves apart
  typedef int Ints __attribute__((vector_size(64)));
  typedef short Shorts __attribute__((vector_size(32)));
  return reinterpret_cast<Floats>(__builtin_ia32_pmovzxwd512_mask(reinterpret_cast<Shorts>(v), Ints{}, -1) << 16);
#else
  return reinterpret_cast<Floats>(__builtin_convertvector(v, Words) << 16);
#endif
}

static inline Floats load_floats(const half* from) {
#if defined(__AVX512F__) && !defined(__clang__)
  typedef short Shorts __attribute__((vector_size(32)));
  Shorts v;
  __builtin_memcpy(&v, from, sizeof v);
  return __builtin_ia32_vcvtph2ps512_mask(v, Floats{}, -1, 4);  // 4: the current rounding direction (widening is exact)
#elif defined(__AVX2__) && defined(__F16C__) && !defined(__AVX512F__)
  typedef short Shorts __attribute__((vector_size(16)));
  Shorts v;
  __builtin_memcpy(&v, from, sizeof v);
  return __builtin_ia32_vcvtph2ps256(v);
#elif defined(__aarch64__)
  typedef half Halves __attribute__((vector_size(LANES * 2)));
  Halves v;
  __builtin_memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v, Floats);
#else
  // Without conversion instructions: shift the exponent and mantissa into place and correct the exponent's bias by an addition. A denormal gets
  // exponent -14 and loses 2^-14 again, so that no denormal of f32 is met, which a caller may have switched off. Infinity and NaN get exponent 255.
  Halfwords v;
  __builtin_memcpy(&v, from, sizeof v);
  const Words bits = __builtin_convertvector(v, Words), magnitude = (bits & 0x7fff) << 13;
  const Words normal = magnitude + (112u << 23);
  const Words denormal = reinterpret_cast<Words>(reinterpret_cast<Floats>(magnitude + (113u << 23)) - 0x1p-14f);
  const Words is_denormal = reinterpret_cast<Words>(magnitude < (1u << 23)), special = reinterpret_cast<Words>(magnitude >= (0x7c00u << 13)) & 0x7f800000;
  return reinterpret_cast<Floats>((normal & ~is_denormal) | (denormal & is_denormal) | special | (bits & 0x8000) << 16);
#endif
}
