// GPU vocabulary: operand A of mma_16x8x16 into a tile in shared memory.
#pragma once
#include "device/gpu.h"

// The opposite of Tile::load_a(): 16 rows, PITCH elements apart, of 16 elements each; `first` is the first one's first.
template <int PITCH, class T> static inline void store_a(T* first, const uint32_t (&a)[4]) {
$if arch.platform == 'cuda'
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_pointer(first) + (lane() % 16 * PITCH + lane() / 16 * 8) * 2), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
               : "memory");
  return;
#endif
$end
  T* const mine = first + lane() / 4 * PITCH + lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(mine + i % 2 * 8 * PITCH + i / 2 * 8) = a[i];
}
