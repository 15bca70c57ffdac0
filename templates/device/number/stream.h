// CPU vocabulary: stores that pass the caches by, for results that are larger than they are and not read again soon. Plain stores where a
// platform has no others (AArch64), and where an address is not aligned to what one instruction stores.
//
//   stream_elements(to, v)       a vector of f32 as LANES elements of to's type, rounded as store_elements() does
//   stream_some(to, v, count)    its first `count` elements
//   stream_row(to, count, at)    `count` elements from any address: at(i, n) gives the elements i to i + n - 1, n <= LANES, in its first n
//                                lanes. Elements are made once each, in ascending order
//   stream_fence()               where an entry ends that has streamed: other threads see all of it before what this one writes later
#pragma once
#include "device/number/narrow.h"

#if defined(__x86_64__)
template <int BYTES> struct StreamWord {};
template <> struct StreamWord<4> { typedef int Type __attribute__((may_alias)); };
template <> struct StreamWord<8> { typedef long long Type __attribute__((may_alias)); };
template <> struct StreamWord<16> { typedef long long Type __attribute__((vector_size(16), may_alias)); };
template <> struct StreamWord<32> { typedef long long Type __attribute__((vector_size(32), may_alias)); };
template <> struct StreamWord<64> { typedef long long Type __attribute__((vector_size(64), may_alias)); };
#ifndef __clang__
static inline void stream_word(int* to, int x) { __builtin_ia32_movnti(to, x); }
static inline void stream_word(long long* to, long long x) { __builtin_ia32_movnti64(to, x); }
static inline void stream_word(StreamWord<16>::Type* to, StreamWord<16>::Type x) { __builtin_ia32_movntdq(to, x); }
#ifdef __AVX2__
static inline void stream_word(StreamWord<32>::Type* to, StreamWord<32>::Type x) { __builtin_ia32_movntdq256(to, x); }
#endif
#ifdef __AVX512F__
static inline void stream_word(StreamWord<64>::Type* to, StreamWord<64>::Type x) { __builtin_ia32_movntdq512(to, x); }
#endif
#endif
// BYTES from one place to another, in one instruction if `to` is aligned to them.
template <int BYTES> static inline void stream_bytes(void* to, const void* from) {
  typename StreamWord<BYTES>::Type word;
  __builtin_memcpy(&word, from, BYTES);
  if (reinterpret_cast<__UINTPTR_TYPE__>(to) % BYTES == 0)
#ifdef __clang__
    __builtin_nontemporal_store(word, static_cast<typename StreamWord<BYTES>::Type*>(to));
#else
    stream_word(static_cast<typename StreamWord<BYTES>::Type*>(to), word);
#endif
  else
    __builtin_memcpy(to, from, BYTES);
}
static inline void stream_fence() { __builtin_ia32_sfence(); }
#else
template <int BYTES> static inline void stream_bytes(void* to, const void* from) { __builtin_memcpy(to, from, BYTES); }
static inline void stream_fence() {}
#endif

template <class T> static inline void stream_elements(T* to, Floats v) {
  T narrow[LANES];
  store_elements(narrow, v);
  stream_bytes<sizeof narrow>(to, narrow);
}

// In words of four bytes; an element before the first or behind the last of them is stored plainly.
template <class T> static inline void stream_some(T* to, Floats v, int64_t count) {
  constexpr int64_t A_WORD = 4 / sizeof(T);
  if (count >= LANES) return stream_elements(to, v);
  T narrow[LANES];
  store_elements(narrow, v);
  int64_t i = 0;
  for (; i < count && reinterpret_cast<__UINTPTR_TYPE__>(to + i) % 4; ++i) to[i] = narrow[i];
  for (; i + A_WORD <= count; i += A_WORD) stream_bytes<4>(to + i, narrow + i);
  for (; i < count; ++i) to[i] = narrow[i];
}

// Elements before the first address that is aligned to a whole vector.
template <class T> static inline int64_t elements_to_alignment(const T* to) {
  const auto past = static_cast<int64_t>(reinterpret_cast<__UINTPTR_TYPE__>(to) % (LANES * sizeof(T)));
  return past ? LANES - past / static_cast<int64_t>(sizeof(T)) : 0;
}
template <class T, class At> static inline void stream_row(T* to, int64_t count, At at) {
  const int64_t head = elements_to_alignment(to);
  int64_t i = head < count ? head : count;
  if (i > 0) stream_some(to, at(int64_t{0}, i), i);
  for (; i + LANES <= count; i += LANES) stream_elements(to + i, at(i, LANES));
  if (i < count) stream_some(to + i, at(i, count - i), count - i);
}
