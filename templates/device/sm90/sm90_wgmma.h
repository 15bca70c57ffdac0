// Hopper vocabulary: matrix products of a warpgroup, D [64][N] += A [64][16] B [16][N], f16 or bf16 with f32 sums. (wgmma.mma_async)
#pragma once

// A tile of A or B in shared memory, as wgmma reads it (PTX ISA, "Shared memory matrix layout"). SWIZZLE: bytes, as in the tensor map that
// brought it; 0: none. The address is aligned to 8 rows of the swizzle, 1024 bytes for 128; for the next 16 along the depth it moves within.
//
// "Rows" are those of A, or the columns of B. Depth-major (each row's 16-bit elements along the depth side by side, SWIZZLE bytes of
// them): 8 rows fill 8 * SWIZZLE bytes, `stride` leads from 8 rows to the next 8; the next 16 of the depth are 32 bytes on. `leading` is
// not used.
// Row-major (SWIZZLE bytes of rows side by side, for one depth): 8 depths fill 8 * SWIZZLE bytes, `stride` leads from 8 depths to the next
// 8, `leading` from SWIZZLE / 2 rows to the next; the next 16 of the depth are 2 * stride on.
// Without a swizzle: bricks of 8 x 16 bytes, whose 16 bytes are of the depth or, row-major, of 8 rows. `leading` leads from a brick to the
// next along the depth, `stride` to that of the next 8 rows: both ways alike.
template <int SWIZZLE> static inline uint64_t matrix_in_shared(uint32_t address, uint32_t leading, uint32_t stride) {
  static_assert(SWIZZLE == 0 || SWIZZLE == 32 || SWIZZLE == 64 || SWIZZLE == 128);
  constexpr uint64_t MODE = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
  const auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(leading) << 16 | field(stride) << 32 | MODE << 62;
}
// Both as one box of a tensor map brings them: depth-major, and row-major with `depths` depths in the box.
template <int SWIZZLE> static inline uint64_t depth_major(uint32_t address) { return matrix_in_shared<SWIZZLE>(address, 16, 8 * SWIZZLE); }
template <int SWIZZLE> static inline uint64_t row_major(uint32_t address, uint32_t depths) {
  return matrix_in_shared<SWIZZLE>(address, depths * SWIZZLE, 8 * SWIZZLE);
}
// The same matrix so many bytes on.
static inline uint64_t moved(uint64_t matrix, uint32_t bytes) { return matrix + (bytes >> 4); }

// Before the first product, and after registers of D or A were written otherwise. (wgmma.fence)
static inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
static inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
// Until all but the last PENDING groups are done; D and A's registers of those must not be touched.
template <int PENDING> static inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(PENDING) : "memory"); }
// The compiler keeps uses of these registers on their side of this line: put it before wgmma_fence and after wgmma_wait.
template <int N> static inline void keep_in_place(float (&d)[N]) {
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
}

// The first 8 n columns of D as operands.
#define WGMMA_D_1 "%0, %1, %2, %3"
#define WGMMA_OPERANDS_1 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
$for n in 2..33
#define WGMMA_D_${n} WGMMA_D_${n - 1} ", %${4 * n - 4}, %${4 * n - 3}, %${4 * n - 2}, %${4 * n - 1}"
#define WGMMA_OPERANDS_${n} WGMMA_OPERANDS_${n - 1}, "+f"(d[${4 * n - 4}]), "+f"(d[${4 * n - 3}]), "+f"(d[${4 * n - 2}]), "+f"(d[${4 * n - 1}])
$end

template <class T> constexpr bool IS_HALF = false;
template <> constexpr bool IS_HALF<half> = true;

// All four warps of the warpgroup call it. Lane l = 4 g + t of warp w (in the warpgroup) holds
//   D [64][N]   d[4 j], d[4 j + 1] = D[16 w + g][8 j + 2 t], ...[8 j + 2 t + 1]; d[4 j + 2], d[4 j + 3] = the same of row 16 w + g + 8
//   A [64][16]  (in registers) rows 16 w .. 16 w + 15 as mma_16x8x16's A
// add: false sets D instead. A_ROWS, B_ROWS: row-major in shared memory (see matrix_in_shared).
template <class T, int N, bool A_ROWS = false, bool B_ROWS = false>
static inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256 && sizeof(T) == 2);
$for n in 1..33
$for half_type in 0..2
  if constexpr (N == ${8 * n} && IS_HALF<T> == ${half_type == 1})
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %${4 * n + 2}, 0;\nwgmma.mma_async.sync.aligned.m64n${8 * n}k16.f32.${half_type == 1 ? 'f16.f16' : 'bf16.bf16'} {" WGMMA_D_${n}
                 "}, %${4 * n}, %${4 * n + 1}, p, 1, 1, %${4 * n + 3}, %${4 * n + 4};\n}"
                 : WGMMA_OPERANDS_${n} : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)), "n"(A_ROWS), "n"(B_ROWS));
$end
$end
}
template <class T, int N, bool B_ROWS = false>
static inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256 && sizeof(T) == 2);
$for n in 1..33
$for half_type in 0..2
  if constexpr (N == ${8 * n} && IS_HALF<T> == ${half_type == 1})
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %${4 * n + 5}, 0;\nwgmma.mma_async.sync.aligned.m64n${8 * n}k16.f32.${half_type == 1 ? 'f16.f16' : 'bf16.bf16'} {" WGMMA_D_${n}
                 "}, {%${4 * n}, %${4 * n + 1}, %${4 * n + 2}, %${4 * n + 3}}, %${4 * n + 4}, p, 1, 1, %${4 * n + 6};\n}"
                 : WGMMA_OPERANDS_${n} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int32_t>(add)), "n"(B_ROWS));
$end
$end
}
