// GPU vocabulary: sums in global memory to which many blocks add.
//
//   add_to_sums(to, x)       each lane adds its four floats to the warp's 128 floats at `to`, aligned to 16 bytes, in the word's own order
//   load_sums(from)          what a lane's calls of add_to_sums() have made of its four
//   add_to_sum(to, x)        each lane adds its float to one of its own
// The order of the additions of different warps is open; one warp's additions to the same place keep theirs.
#pragma once
#include "device/gpu.h"

$if arch.platform == 'cuda'
static inline void add_to_sum(float* to, float x) { asm volatile("red.global.add.f32 [%0], %1;" : : "l"(to), "f"(x) : "memory"); }
#if __CUDA_ARCH__ >= 900
static inline void add_to_sums(float* to, const float (&x)[4]) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to + 4 * lane()), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
static inline Pack<float, 4> load_sums(const float* from) { return load_once<4>(from + 4 * lane()); }
#else
static inline void add_to_sums(float* to, const float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("red.global.add.f32 [%0], %1;" : : "l"(to + WARP * i + lane()), "f"(x[i]) : "memory");
}
static inline Pack<float, 4> load_sums(const float* from) {
  Pack<float, 4> x;
#pragma unroll
  for (int i = 0; i < 4; ++i) x.at[i] = from[WARP * i + lane()];
  return x;
}
#endif
$elif arch.platform == 'simt'
static inline void add_to_sum(float* to, float x) { *to += x; }
static inline void add_to_sums(float* to, const float (&x)[4]) {
  simt_check_alignment<Pack<float, 4>>("add_to_sums", to);
  for (int i = 0; i < 4; ++i) to[4 * lane() + i] += x[i];
}
static inline Pack<float, 4> load_sums(const float* from) { return load_pack<4>(from + 4 * lane()); }
$end
