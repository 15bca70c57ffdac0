// GPU vocabulary of ssd, 64 tokens at a time: a chunk's steps, and D x.
#pragma once
#include "recurrent/chunk_gates.h"
#include "recurrent/chunk_products.h"
#include "ssd/dual_numbers.h"

// sums += skip x, of values by tokens.
static inline void add_skip(Sums<4>& sums, const Operands<4>& x, float skip) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float own[2][4];
    to_sums(own[0], own[1], x[c]);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[2 * c + n][i] += skip * own[n][i];
  }
}
