// Emulator vocabulary: device/gpu.h's words in plain C++, for one GPU thread at a time; emulator runs the threads as fibers.
// Integer types are CUDA's, so that overloads resolve as they do there: no system header may come before or after.
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long uintptr_t;
#include "device/platform/simt_host.h"
#include "device/view.h"

struct half { uint16_t bits; };      // IEEE binary16
struct bfloat16 { uint16_t bits; };  // the upper half of a float

constexpr float INFINITE = __builtin_inff();
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

#define KERNEL(THREADS, BLOCKS) static_assert((THREADS) <= 1024); static void

// One block's memory at a time: the emulator fills it with NaN before each block. The section's ends are known by its name; `used`: not
// only this file writes there.
#define __shared__ static __attribute__((section("ejk_shared"), used))
extern "C" __attribute__((weak, visibility("hidden"))) char __start_ejk_shared[], __stop_ejk_shared[];

static const SimtHost* simt_host;
extern "C" __attribute__((visibility("default"))) void ejk_simt_bind(const SimtHost* host, SimtImage* image) {
  simt_host = host;
  image->shared_begin = __start_ejk_shared;
  image->shared_end = __stop_ejk_shared;
  image->wave = ${arch.wave};
  image->most_shared = ${arch.listed.shared_memory};
}

static inline const SimtThread& simt_thread() { return **simt_host->running; }
static inline int thread_x() { return simt_thread().thread_x; }
static inline int block_x() { return simt_thread().block_x; }
static inline int block_y() { return simt_thread().block_y; }
static inline int block_z() { return simt_thread().block_z; }
static inline int grid_x() { return simt_thread().grid_x; }
static inline int grid_y() { return simt_thread().grid_y; }
static inline char* dynamic_shared() { return simt_thread().dynamic_shared; }

// As in CUDA a number of bytes in a window of 32 bits.
typedef uint32_t SharedPointer;
static inline SharedPointer shared_pointer(const void* at) { return simt_host->shared_pointer(at); }
static inline void fetch(const void*) {}
template <class T> static inline const T* keep(const T* x) { return x; }

template <class To, class From> static inline To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, x);
}

static inline void sync_block() { simt_host->sync_block(); }
static inline void sync_warp() { simt_host->sync_warp(); }
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
template <class P> static inline void simt_check_alignment(const char* word, const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % alignof(P)) simt_host->misaligned(word, at, alignof(P));
}
template <int N, class T> static inline Pack<T, N> load_pack(const T* from) {
  simt_check_alignment<Pack<T, N>>("load_pack", from);
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N> static inline void store_pack(T* to, const Pack<T, N>& x) {
  simt_check_alignment<Pack<T, N>>("store_pack", to);
  *reinterpret_cast<Pack<T, N>*>(to) = x;
}
template <int N, class T> static inline Pack<T, N> load_once(const T* from) {
  simt_check_alignment<Pack<T, N>>("load_once", from);
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N> static inline void store_once(T* to, const Pack<T, N>& x) {
  simt_check_alignment<Pack<T, N>>("store_once", to);
  *reinterpret_cast<Pack<T, N>*>(to) = x;
}

// Conversions to nearest even; a NaN stays one.
static inline float to_float(float x) { return x; }
static inline float to_float(bfloat16 x) { return bits_as<float>(static_cast<uint32_t>(x.bits) << 16); }
static inline float to_float(half x) { return static_cast<float>(bits_as<_Float16>(x)); }
template <class T> static inline T from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline half from_float<half>(float x) { return bits_as<half>(static_cast<_Float16>(x)); }
// Denormal results of exp2_of, denormal arguments and results of reciprocal are 0, as in CUDA's approximations.
static inline float simt_flushed(float x) { return __builtin_fabsf(x) < 1.17549435e-38f ? __builtin_copysignf(0.0f, x) : x; }
static inline float exp2_of(float x) { return simt_flushed(__builtin_exp2f(x)); }
static inline float reciprocal(float x) { return simt_flushed(1.0f / simt_flushed(x)); }
static inline float log_of(float x) { return __builtin_logf(x); }
static inline float cut_to(float x, float bound) { return x > bound ? bound : x < -bound ? -bound : x; }  // a NaN stays one
#include "device/platform/tanh.h"
static inline float larger_of(float a, float b) { return __builtin_fmaxf(a, b); }

$if arch.model == 'nvidia'
#include "device/platform/simt_nvidia.h"
$else
#include "device/platform/simt_amd.h"
$end
