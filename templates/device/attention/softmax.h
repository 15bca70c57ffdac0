// GPU vocabulary of the attention kernels: a row's softmax over some of its keys, and how two become one.
#pragma once
#include "device/gpu.h"

// The reference of a row that has seen nothing: finite, so that what lies below it, -inf, has weight 0 relative to it.
constexpr float LOWEST = -3.4e38f;

// Weights are 2^(score - reference), scores in units of log 2; sum: of the weights.
struct alignas(8) Softmax {
  float reference, sum;
};

// Two parts of a row become one; what was relative to either's reference times the factors is relative to the new one.
static inline float factor_of(const Softmax& part, float reference) { return exp2_of(part.reference - reference); }
