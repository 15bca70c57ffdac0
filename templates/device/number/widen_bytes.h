// CPU vocabulary: LANES elements of one byte, i8 or f8_e4m3, from any address, as a vector of f32. Exact.
#pragma once
#include "device/number/float8.h"
#include "device/number/widen.h"

typedef int8_t Bytes __attribute__((vector_size(LANES)));

static inline Floats load_floats(const int8_t* from) {
#if defined(__AVX512F__) && !defined(__clang__)  // GCC 12 would widen the quarters apart
  typedef char Chars __attribute__((vector_size(16)));
  typedef int Ints __attribute__((vector_size(64)));
  Chars v;
  __builtin_memcpy(&v, from, sizeof v);
  return __builtin_convertvector(__builtin_ia32_pmovsxbd512_mask(v, Ints{}, -1), Floats);
#elif defined(__AVX2__) && !defined(__AVX512F__) && !defined(__clang__)
  typedef char Chars __attribute__((vector_size(16)));
  typedef long long Longs __attribute__((vector_size(16)));
  Longs v = {};
  __builtin_memcpy(&v, from, LANES);
  return __builtin_convertvector(__builtin_ia32_pmovsxbd256(reinterpret_cast<Chars>(v)), Floats);
#else
  typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
  Bytes v;
  __builtin_memcpy(&v, from, sizeof v);
  return __builtin_convertvector(__builtin_convertvector(v, Ints), Floats);
#endif
}

// Without half-precision instructions, as for f16: exponent and mantissa into place, the bias by a multiplication.
static inline Floats load_floats(const float8_e4m3* from) {
#if (defined(__AVX2__) && defined(__F16C__)) || defined(__AVX512F__)
  // By way of f16, whose exponent is a bit longer: 2^-8 times the number, also where it is a denormal. Only NaN is none there.
  typedef short Shorts __attribute__((vector_size(LANES * 2)));
#if !defined(__clang__)
  typedef char Chars __attribute__((vector_size(16)));
#if defined(__AVX512F__)
  Chars v;
  __builtin_memcpy(&v, from, sizeof v);
  const Shorts wide = reinterpret_cast<Shorts>(__builtin_ia32_pmovsxbw256(v));
#else
  typedef long long Longs __attribute__((vector_size(16)));
  Longs v = {};
  __builtin_memcpy(&v, from, LANES);
  const Shorts wide = __builtin_ia32_pmovsxbw128(reinterpret_cast<Chars>(v));
#endif
#else
  Bytes v;
  __builtin_memcpy(&v, from, sizeof v);
  const Shorts wide = __builtin_convertvector(v, Shorts);
#endif
  const Shorts moved = (wide << 7) & static_cast<short>(0xbf80);
  const Shorts nan = (moved & 0x3f80) == 0x3f80;
  const Shorts halves = moved | (nan & 0x7e00);
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_vcvtph2ps512_mask(halves, Floats{}, -1, 4) * 256.0f;
#elif !defined(__AVX512F__)
  return __builtin_ia32_vcvtph2ps256(halves) * 256.0f;
#else
  typedef _Float16 Halves __attribute__((vector_size(LANES * 2)));
  return __builtin_convertvector(reinterpret_cast<Halves>(halves), Floats) * 256.0f;
#endif
#else
  typedef uint8_t Unsigned __attribute__((vector_size(LANES)));
  Unsigned v;
  __builtin_memcpy(&v, from, sizeof v);
  const Words bits = __builtin_convertvector(v, Words), magnitude = bits & 0x7f;
  const Words finite = reinterpret_cast<Words>(reinterpret_cast<Floats>(magnitude << 20) * 0x1p120f);
  const Words nan = reinterpret_cast<Words>(magnitude == 0x7f) & 0x7fc00000;
  return reinterpret_cast<Floats>(finite | nan | (bits & 0x80) << 24);
#endif
}
