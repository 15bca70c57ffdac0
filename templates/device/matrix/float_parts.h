// GPU vocabulary: numbers of f32 as the sum of three of bf16, each the upper half of what those before it leave: no bit is lost. Of the nine
// products of two numbers' parts the six that matter in f32 are made, the small ones first: FIRST_PART[i] times SECOND_PART[i].
// Infinities become NaN.
#pragma once
#include "device/gpu.h"

constexpr int FLOAT_PARTS = 3, PART_PRODUCTS = 6;
constexpr int FIRST_PART[PART_PRODUCTS] = {2, 1, 0, 1, 0, 0}, SECOND_PART[PART_PRODUCTS] = {0, 1, 2, 0, 1, 0};

// The parts of two numbers, as words of two bf16.
struct FloatPair {
  uint32_t of[FLOAT_PARTS];
  FloatPair(float first, float second) {
#pragma unroll
    for (int p = 0; p < FLOAT_PARTS; ++p) {
      const uint32_t low = __builtin_bit_cast(uint32_t, first) >> 16, high = __builtin_bit_cast(uint32_t, second) & 0xffff0000u;
      of[p] = high | low;
      first -= __builtin_bit_cast(float, low << 16), second -= __builtin_bit_cast(float, high);
    }
  }
};
