// Hopper vocabulary: products of f32 on a warp's matrix instructions, which take 11 digits of a factor: what those leave is a factor of its own.
#pragma once

// Lane l = 4 g + t holds (PTX ISA, "Matrix fragments for mma.m16n8k8")
//   A [16][8]  a[0] = A[g][t], a[1] = A[g + 8][t], a[2] = A[g][t + 4], a[3] = A[g + 8][t + 4]
//   B [8][8]   b[0] = B[t][g], b[1] = B[t + 4][g]
//   C [16][8]  c[0], c[1] = C[g][2 t], C[g][2 t + 1]; c[2], c[3] = the same of row g + 8
// c += A B.
static inline void mma_16x8x8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Numbers as two factors each, together of 22 digits.
template <int N> struct SplitFactor {
  uint32_t all[N], rest[N];
  void set(int i, float x) {
    all[i] = __builtin_bit_cast(uint32_t, x) & 0xffffe000u;
    rest[i] = __builtin_bit_cast(uint32_t, x - __builtin_bit_cast(float, all[i]));
  }
};

// c += A B, and to `rest` what the factors' rests give, without the product of both.
static inline void mma_split(float (&c)[4], float (&rest)[4], const SplitFactor<4>& a, const SplitFactor<2>& b) {
  mma_16x8x8(rest, a.rest, b.all);
  mma_16x8x8(rest, a.all, b.rest);
  mma_16x8x8(c, a.all, b.all);
}
