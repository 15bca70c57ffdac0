// CUDA vocabulary: device/gpu.h's words in builtins and PTX (sm_80 and later). Functions are device functions: NVRTC compiles with
// --device-as-default-execution-space.
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#include "device/view.h"

struct half { uint16_t bits; };      // IEEE binary16
struct bfloat16 { uint16_t bits; };  // the upper half of a float

struct alignas(64) TensorMap { uint64_t words[16]; };  // {"tensor_map": ...} in a launch's args; its address goes into TMA instructions

constexpr int WARP = 32;
constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000u);
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

#define KERNEL(THREADS, BLOCKS) extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)

static inline int thread_x() { return static_cast<int>(threadIdx.x); }
static inline int block_x() { return static_cast<int>(blockIdx.x); }
static inline int block_y() { return static_cast<int>(blockIdx.y); }
static inline int block_z() { return static_cast<int>(blockIdx.z); }
static inline int grid_x() { return static_cast<int>(gridDim.x); }
static inline int grid_y() { return static_cast<int>(gridDim.y); }
static inline int lane() { return thread_x() % WARP; }
static inline int warp() { return thread_x() / WARP; }

static inline char* dynamic_shared() {
  extern __shared__ __align__(128) char dynamic_shared_bytes[];
  return dynamic_shared_bytes;
}
// An address in shared memory, in bytes: half the registers of a pointer, and sums with constants go into the instruction.
typedef uint32_t SharedPointer;
static inline SharedPointer shared_pointer(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

static inline void sync_block() { __syncthreads(); }
static inline void sync_warp() { __syncwarp(); }
static inline bool any_in_block(bool x) { return __syncthreads_or(x); }
static inline bool any_in_warp(bool x) { return __any_sync(0xffffffff, x); }
template <class T> static inline T shuffle_xor(T x, int mask) { return __shfl_xor_sync(0xffffffff, x, mask); }
template <class T> static inline T shuffle_down(T x, int by) { return __shfl_down_sync(0xffffffff, x, by); }
template <class T> static inline T shuffle(T x, int from) { return __shfl_sync(0xffffffff, x, from); }

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
template <int N, class T> static inline Pack<T, N> load_pack(const T* from) { return *reinterpret_cast<const Pack<T, N>*>(from); }
template <class T, int N> static inline void store_pack(T* to, const Pack<T, N>& x) { *reinterpret_cast<Pack<T, N>*>(to) = x; }

// Global memory that this kernel reads, or writes, once: it need not stay in the cache. 16 bytes bypass the first-level cache.
template <int N, class T> static inline Pack<T, N> load_once(const T* from) {
  if constexpr (sizeof(T) * N == 16) {
    uint32_t w[4];
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
    return *reinterpret_cast<const Pack<T, N>*>(w);
  }
  return load_pack<N>(from);
}
template <class T, int N> static inline void store_once(T* to, const Pack<T, N>& x) {
  if constexpr (sizeof(T) * N == 16) {
    const uint32_t* w = reinterpret_cast<const uint32_t*>(&x);
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" : : "l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
  } else {
    store_pack(to, x);
  }
}

// 16 bytes from global to shared memory, both aligned; zeros if not `wanted`: `from` is not read then.
static inline void copy_async_16(SharedPointer to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(wanted ? 16 : 0) : "memory");
}
static inline void copy_async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Until all but the last PENDING groups of this thread have arrived; other threads see them after a barrier.
template <int PENDING> static inline void copy_async_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory"); }

// Brings the 128 bytes around an address into the L2 cache.
static inline void fetch(const void* from) { asm volatile("prefetch.global.L2 [%0];" : : "l"(from)); }

// x; the compiler forgets how it was made, and so keeps no part of it in registers beforehand.
template <class T> static inline const T* keep(const T* x) {
  asm volatile("" : "+l"(x));
  return x;
}

static inline float to_float(float x) { return x; }
static inline float to_float(bfloat16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
static inline float to_float(half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
template <class T> static inline T from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline half from_float<half>(float x) {
  half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <> inline bfloat16 from_float<bfloat16>(float x) {
  bfloat16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
// Two elements in one word, `low` at the lower address.
template <class T> static inline uint32_t pack_pair(float low, float high);
template <> inline uint32_t pack_pair<half>(float low, float high) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
template <> inline uint32_t pack_pair<bfloat16>(float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

// 2^x to 2 ulp; denormal results are 0.
static inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static inline float reciprocal(float x) {  // to 1 ulp
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static inline float log_of(float x) { return logf(x); }
// x cut to [-bound, bound]; a NaN stays one.
static inline float cut_to(float x, float bound) {
  float y;
#if __CUDA_ARCH__ >= 860
  asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
#else
  asm("{ .reg .f32 z; min.NaN.f32 z, %1, %2; max.NaN.f32 %0, z, %3; }" : "=f"(y) : "f"(x), "f"(bound), "f"(-bound));
#endif
  return y;
}
#include "device/platform/tanh.h"
static inline float larger_of(float a, float b) { return fmaxf(a, b); }

// Tiles of a warp (PTX ISA, "Matrix fragments for mma.m16n8k16"). Lane l = 4 g + t holds
//   A [16][16]  a[0] = A[g][2 t ..], a[1] = A[g + 8][2 t ..], a[2] = A[g][2 t + 8 ..], a[3] = A[g + 8][2 t + 8 ..]   (pairs of elements)
//   B [16][8]   b0 = B[2 t ..][g], b1 = B[2 t + 8 ..][g]
//   C [16][8]   c[0], c[1] = C[g][2 t], C[g][2 t + 1]; c[2], c[3] = the same of row g + 8
// c += A B, products and sums in f32.
template <class T> static inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <> inline void mma_16x8x16<half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> inline void mma_16x8x16<bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8 x 8 matrices of 16-bit elements from shared memory: lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned).
// r[i]: of matrix i, lane 4 g + t gets elements [g][2 t], [g][2 t + 1]; transposed: [2 t][g], [2 t + 1][g].
static inline void load_matrices(uint32_t (&r)[4], SharedPointer row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
static inline void load_matrices_transposed(uint32_t (&r)[4], SharedPointer row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
