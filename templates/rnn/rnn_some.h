// CPU vocabulary: partial vectors, as load_some and store_some, whose rare ends are functions of their own: code that has many of them
// compiles in a fraction of the time.
#pragma once
#include "device/number/narrow.h"
#include "device/number/vector.h"

template <class T> static __attribute__((noinline)) Floats load_end(const T* from, int64_t count) { return load_some(from, count); }
template <class T> static inline Floats load_part(const T* from, int64_t count) {
  return count >= LANES ? load_floats(from) : load_end(from, count);
}
template <class T> static __attribute__((noinline)) void store_end(T* to, Floats v, int64_t count) { store_some(to, v, count); }
template <class T> static inline void store_part(T* to, Floats v, int64_t count) {
  if (count >= LANES) return store_elements(to, v);
  store_end(to, v, count);
}
