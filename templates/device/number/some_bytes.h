// CPU vocabulary: the first of LANES elements of type i8, for rows that fill no whole vectors. Before templates that use load_some, which do not find
// what is declared after them for a type of the language.
#pragma once
#include "device/number/vector.h"
#include "device/number/widen_bytes.h"

static inline Floats load_some(const int8_t* from, int64_t count) {
  if (count >= LANES) return load_floats(from);
  Floats v = {};
  for (int64_t i = 0; i < count; ++i) v[i] = to_float(from[i]);
  return v;
}
