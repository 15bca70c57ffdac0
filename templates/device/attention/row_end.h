// GPU vocabulary of decoding: a row's softmax once its keys are done, and parts of rows that several blocks computed.
#pragma once
#include "device/attention/row_scale.h"
#include "device/attention/attention.h"

// An output a query head: [sequences, heads, ...]. Null: not wanted.
struct HeadOutput {
  void* data;
  int64_t sequence_stride, head_stride;
  int64_t at(int sequence, int head) const { return sequence * sequence_stride + head * head_stride; }
};

// What becomes of rows: sinks, out, lse.
struct RowEnd {
  const View& softmax_aux;
  int64_t sinks_type;
  int heads;
  HeadOutput out, lse;

  // Adds the sinks of a query head.
  __attribute__((noinline)) Softmax add_sinks(Softmax row, int head) const {
    const Sinks sinks(softmax_aux, sinks_type, head, heads);
    float reference = row.reference;
#pragma unroll 1
    for (int64_t i = 0; i < sinks.count; ++i) reference = larger_of(reference, sinks[i] * LOG2_E);
    row = {reference, row.sum * factor_of(row, reference)};
#pragma unroll 1
    for (int64_t i = 0; i < sinks.count; ++i) row.sum += exp2_of(sinks[i] * LOG2_E - reference);
    return row;
  }
  Softmax with_sinks(const Softmax& row, int head) const { return sinks_type < 0 ? row : add_sinks(row, head); }

  template <class T, int N> void store(int sequence, int head, int feature, const float (&x)[N], float factor) const {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = from_float<T>(x[i] * factor);
    store_pack(static_cast<T*>(out.data) + out.at(sequence, head) + feature, pack);
  }
  void store_lse(int sequence, int head, const Softmax& row) const {
    if (!lse.data) return;
    static_cast<float*>(lse.data)[lse.at(sequence, head)] = row.sum == 0 ? -INFINITE : row.reference * LN_2 + log_of(row.sum);
  }
};

// The factors of a tensor of 8-bit numbers: one for all of it (stride 0), or one a kv head; 1 if there are none.
struct Factors {
  const float* data;
  int64_t stride;
  float operator[](int kv_head) const { return data ? data[kv_head * stride] : 1; }
};
