// CPU vocabulary: element types, the work item, strided views. Inlined into every rendered CPU source; needs no include path.
#pragma once
typedef __SIZE_TYPE__ size_t;
typedef __INT64_TYPE__ int64_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __INT8_TYPE__ int8_t;
#include "device/view.h"

#if defined(__aarch64__)
typedef __fp16 half;  // IEEE binary16; GCC 12 has no _Float16 in C++ here
#else
typedef _Float16 half;  // IEEE binary16
#endif
struct bfloat16 { uint16_t bits; };  // the upper half of a float

// One item of a launch's grid, and the worker's scratch (the launch's `shared` bytes, 64-byte aligned, contents undefined).
struct Group {
  int64_t x, y, z;
  int64_t grid_x, grid_y, grid_z;
  void* shared;
};

static inline float to_float(float v) { return v; }
static inline float to_float(half v) { return static_cast<float>(v); }
static inline float to_float(bfloat16 v) { return __builtin_bit_cast(float, static_cast<uint32_t>(v.bits) << 16); }

// Round to nearest even; NaN stays NaN.
template <class T> static inline T from_float(float v);
template <> inline float from_float<float>(float v) { return v; }
template <> inline half from_float<half>(float v) { return static_cast<half>(v); }
template <> inline bfloat16 from_float<bfloat16>(float v) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  if (v != v) return bfloat16{static_cast<uint16_t>((bits >> 16) | 0x40)};
  return bfloat16{static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
