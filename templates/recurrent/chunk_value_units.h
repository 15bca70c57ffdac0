// GPU vocabulary of the chunked recurrence with gates of values: units of what a warp multiplies and, with gates of keys, of a chunk's weighed rows.
// Halves have units of chunk_unit.h and chunk_key_units.h; bf16 has the range of f32, so that all of them are 1. Part of a template, which has
// defined KEYS before.
#pragma once
$if E == 'f16'
#include "recurrent/chunk_unit.h"
$if by_steps
#include "recurrent/chunk_key_units.h"
$end

template <int N> static inline Unit unit_of_sums(const float (&sums)[N][4]) { return common_unit(sums); }
$else

struct RowUnits {
  static constexpr float scaled_queries = 1, keys = 1;
  static constexpr float of_pairs() { return 1; }
};
struct Unit {
  static constexpr float of = 1, inverse = 1;
};
template <int N> static inline Unit unit_of_sums(const float (&)[N][4]) { return {}; }
$end
