// GPU vocabulary of decoding: queries for products of halves. Part of a template, which has the types of query_types.h.
#pragma once

// Rows become halves, multiplied by a power of two that makes the largest element of the row about 2^14; `unit` is divided by it.
static inline void narrow_queries(Queries& q, PerRow& unit) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
    float largest = 0;
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float a = to_float(first_of(q[slice][r][i])), b = to_float(second_of(q[slice][r][i]));
        largest = larger_of(larger_of(largest, larger_of(a, -a)), larger_of(b, -b));
      }
    largest = larger_of(largest, shuffle_xor(largest, 1));
    largest = larger_of(largest, shuffle_xor(largest, 2));
    int exponent = static_cast<int>(__builtin_bit_cast(uint32_t, largest) >> 23);
    if (exponent < 15) exponent = 15;
    const float factor = __builtin_bit_cast(float, static_cast<uint32_t>(268 - exponent) << 23);
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        q[slice][r][i] = pack_pair<half>(to_float(first_of(q[slice][r][i])) * factor, to_float(second_of(q[slice][r][i])) * factor);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      unit[r][i] *= __builtin_bit_cast(float, static_cast<uint32_t>(shuffle(exponent, lane() % 4 * 8 + i * 4) - 14) << 23);
  }
}
