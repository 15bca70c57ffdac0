// HIP vocabulary: device/gpu.h's words in clang's builtins for AMD's GPUs; no HIP header, no device library. Functions are device
// functions: clang counts all of them as both until the end of the file.
#pragma once
#ifndef __global__  // hipRTC has them
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#endif
#ifdef __HIPCC_RTC__  // it has a type of this name
#define half ejk_half
#endif
#pragma clang force_cuda_host_device begin
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

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000u);
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;
constexpr int WAVE = ${arch.wave};                               // threads of a wave
constexpr int SIMDS = ${arch.generation == 'cdna' ? 4 : 2};      // that share out a compute unit's waves

// So many blocks per compute unit are so many waves per SIMD, for which the compiler keeps registers.
constexpr int waves_of(int threads, int blocks) { return ((threads + WAVE - 1) / WAVE * blocks + SIMDS - 1) / SIMDS; }
#define KERNEL(THREADS, BLOCKS) \
  extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(1, THREADS), amdgpu_waves_per_eu(waves_of(THREADS, BLOCKS))))

static inline int thread_x() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
static inline int block_x() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
static inline int block_y() { return static_cast<int>(__builtin_amdgcn_workgroup_id_y()); }
static inline int block_z() { return static_cast<int>(__builtin_amdgcn_workgroup_id_z()); }
// The dispatch packet counts threads (HSA Platform System Architecture, "Kernel dispatch packet"); blocks have one dimension.
static inline int grid_x() { return static_cast<int>(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()); }
static inline int grid_y() { return static_cast<int>(__builtin_amdgcn_grid_size_y()); }

static inline char* dynamic_shared() {
  extern __shared__ __attribute__((aligned(128))) char dynamic_shared_bytes[];
  return dynamic_shared_bytes;
}
// An address in shared memory, in bytes.
typedef uint32_t SharedPointer;
template <class T> using InShared = __attribute__((address_space(3))) T;
static inline SharedPointer shared_pointer(const void* at) {
  return static_cast<uint32_t>(reinterpret_cast<unsigned long>((InShared<const char>*)at));
}
template <class T> static inline T* shared_at(SharedPointer at) { return (T*)reinterpret_cast<InShared<T>*>(static_cast<unsigned long>(at)); }

static inline void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// A wave's lanes run in step: only the compiler must not move accesses over it.
static inline void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Of the wave: x of lane `from`, 0 from one that is not here; a bit for each lane that is here.
static inline uint32_t permute_wave(uint32_t x, int from) {
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(from << 2, static_cast<int>(x)));
}
static inline uint64_t ballot_wave(bool x) {
#if !__has_builtin(__builtin_amdgcn_ballot_w${arch.wave})  // clang 15; 33: not equal
  return __builtin_amdgcn_uicmp(static_cast<uint32_t>(x), 0u, 33);
#else
  return __builtin_amdgcn_ballot_w${arch.wave}(x);
#endif
}

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
template <int N, class T> static inline Pack<T, N> load_pack(const T* from) { return *reinterpret_cast<const Pack<T, N>*>(from); }
template <class T, int N> static inline void store_pack(T* to, const Pack<T, N>& x) { *reinterpret_cast<Pack<T, N>*>(to) = x; }

// Global memory that this kernel reads, or writes, once: it need not stay in the cache.
typedef uint32_t Words __attribute__((ext_vector_type(4)));
template <int N, class T> static inline Pack<T, N> load_once(const T* from) {
  if constexpr (sizeof(T) * N == 16)
    return __builtin_bit_cast(Pack<T, N>, __builtin_nontemporal_load(reinterpret_cast<const Words*>(from)));
  else
    return load_pack<N>(from);
}
template <class T, int N> static inline void store_once(T* to, const Pack<T, N>& x) {
  if constexpr (sizeof(T) * N == 16)
    __builtin_nontemporal_store(__builtin_bit_cast(Words, x), reinterpret_cast<Words*>(to));
  else
    store_pack(to, x);
}

static inline void fetch(const void*) {}

// x; the compiler forgets how it was made, and so keeps no part of it in registers beforehand.
template <class T> static inline const T* keep(const T* x) {
  asm volatile("" : "+v"(x));
  return x;
}

static inline float to_float(float x) { return x; }
static inline float to_float(bfloat16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }
static inline float to_float(half x) { return static_cast<float>(__builtin_bit_cast(_Float16, x.bits)); }
template <class T> static inline T from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline half from_float<half>(float x) { return {__builtin_bit_cast(uint16_t, static_cast<_Float16>(x))}; }

// 2^x to 2 ulp; denormal results are 0.
static inline float exp2_of(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
}
static inline float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }  // to 1 ulp
static inline float log_of(float x) { return __builtin_logf(x); }
static inline float cut_to(float x, float bound) { return x > bound ? bound : x < -bound ? -bound : x; }  // a NaN stays one
#include "device/platform/tanh.h"
static inline float larger_of(float a, float b) { return __builtin_fmaxf(a, b); }
#include "device/platform/amd.h"
