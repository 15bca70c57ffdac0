// GPU vocabulary: the matrices that products over all tokens take, in the workspace: elements as they are, or, in f32 on Hopper, three parts of
// bf16 (device/matrix/float_parts.h), each a matrix of `size` numbers behind the one before.
#pragma once
$if split
#include "device/matrix/float_parts.h"

// Two neighbours at an even place.
static inline void put_two(void* matrix, int64_t size, int64_t at, float first, float second) {
  const FloatPair parts(first, second);
#pragma unroll
  for (int p = 0; p < FLOAT_PARTS; ++p) *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(matrix) + p * size + at) = parts.of[p];
}
static inline void get_two(float (&to)[2], const void* matrix, int64_t size, int64_t at) {
  to[0] = to[1] = 0;
#pragma unroll
  for (int p = FLOAT_PARTS - 1; p >= 0; --p) {  // the smallest first: no sum is rounded
    const uint32_t both = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(matrix) + p * size + at);
    to[0] += __builtin_bit_cast(float, both << 16), to[1] += __builtin_bit_cast(float, both & 0xffff0000u);
  }
}
$else
static inline void put_two(void* matrix, int64_t, int64_t at, float first, float second) {
  store_pack(static_cast<Element*>(matrix) + at, Pack<Element, 2>{{from_float<Element>(first), from_float<Element>(second)}});
}
static inline void get_two(float (&to)[2], const void* matrix, int64_t, int64_t at) {
  const Pack<Element, 2> both = load_pack<2>(static_cast<const Element*>(matrix) + at);
  to[0] = to_float(both.at[0]), to[1] = to_float(both.at[1]);
}
$end

// A row of `count` elements of `from`, or zeros where that is null, by the block's 128 threads.
static inline void put_row(void* matrix, int64_t size, int64_t at, const Element* from, int64_t count) {
$if split
  for (int64_t i = 2 * thread_x(); i < count; i += 256) put_two(matrix, size, at + i, from ? from[i] : 0.0f, from ? from[i + 1] : 0.0f);
$else
  constexpr int WIDE = 16 / sizeof(Element);
  Element* const to = static_cast<Element*>(matrix) + at;
  if (count % WIDE == 0 && reinterpret_cast<uint64_t>(from) % 16 == 0) {
    for (int64_t i = thread_x() * WIDE; i < count; i += 128 * WIDE)
      store_pack(reinterpret_cast<uint32_t*>(to + i), from ? load_pack<4>(reinterpret_cast<const uint32_t*>(from + i)) : Pack<uint32_t, 4>{});
  } else {
    for (int64_t i = thread_x(); i < count; i += 128) to[i] = from ? from[i] : from_float<Element>(0.0f);
  }
$end
}
