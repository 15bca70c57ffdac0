// GPU vocabulary of paged attention: a row's softmax once its keys are done, and parts of rows that several blocks computed.
#pragma once
#include "device/gpu.h"
#include "device/attention.h"

// The reference of a row that has seen nothing: finite, so that what lies below it, -inf, has weight 0 relative to it.
constexpr float LOWEST = -3.4e38f;

// Weights are 2^(score - reference), scores in units of log 2; sum: of the weights.
struct Softmax {
  float reference, sum;
};

// Two parts of a row become one; what was relative to either's reference times the factors is relative to the new one.
static inline float factor_of(const Softmax& part, float reference) { return exp2_of(part.reference - reference); }

// What becomes of rows: sinks, out, lse and the factor of the values.
struct RowEnd {
  const View &softmax_aux, &out, &lse;
  int64_t sinks_type;

  // Adds the sinks of a query head.
  Softmax with_sinks(Softmax row, int head) const {
    if (!is_given(softmax_aux)) return row;
    const Sinks sinks(softmax_aux, sinks_type, head, out.shape[1]);
    float reference = row.reference;
#pragma unroll 1
    for (int64_t i = 0; i < sinks.count; ++i) reference = larger_of(reference, sinks[i] * LOG2_E);
    row = {reference, row.sum * factor_of(row, reference)};
#pragma unroll 1
    for (int64_t i = 0; i < sinks.count; ++i) row.sum += exp2_of(sinks[i] * LOG2_E - reference);
    return row;
  }

  // What takes values that were summed relative to `part` to the output, when `row` is the same with sinks.
  static float scale(const Softmax& part, const Softmax& row) { return row.sum == 0 ? 0 : factor_of(part, row.reference) / row.sum; }

  template <class T, int N> void store(int sequence, int head, int feature, const float (&x)[N], float factor) const {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = from_float<T>(x[i] * factor);
    store_pack(static_cast<T*>(out.data) + sequence * out.strides[0] + head * out.strides[1] + feature, pack);
  }
  void store_lse(int sequence, int head, const Softmax& row) const {
    if (!is_given(lse)) return;
    static_cast<float*>(lse.data)[sequence * lse.strides[0] + head * lse.strides[1]] =
        row.sum == 0 ? -INFINITE : row.reference * LN_2 + log_of(row.sum);
  }
};

// The factor of a tensor of 8-bit numbers: one for all of it, or one a kv head; 1 if it is not given.
static inline float scale_of(const View& scale, int kv_head) {
  if (!is_given(scale)) return 1;
  return static_cast<const float*>(scale.data)[scale.shape[0] == 1 ? 0 : kv_head * scale.strides[0]];
}
