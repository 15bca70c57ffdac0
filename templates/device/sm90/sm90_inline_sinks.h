// Hopper vocabulary of the attention kernels: the sinks of a query head, without calls, which would make wgmma wait.
#pragma once
#include "device/attention/attention.h"
#include "device/attention/softmax.h"

// Sinks (attention.h) whose elements are read in place.
struct InlineSinks : Sinks {
  int64_t element_type;
  InlineSinks(const View& view, int64_t type, int64_t head, int64_t heads) : Sinks(view, type, head, heads), element_type(type) {}
  float operator[](int64_t i) const {
    if (element_type == TYPE_F16) return to_float(static_cast<const half*>(data)[first + i]);
    if (element_type == TYPE_BF16) return to_float(static_cast<const bfloat16*>(data)[first + i]);
    return static_cast<const float*>(data)[first + i];
  }
  // The softmax of a row before its keys.
  void start(float& reference, float& sum) const {
    reference = LOWEST, sum = 0;
#pragma unroll 1
    for (int64_t i = 0; i < count; ++i) reference = larger_of(reference, (*this)[i] * LOG2_E);
#pragma unroll 1
    for (int64_t i = 0; i < count; ++i) sum += exp2_of((*this)[i] * LOG2_E - reference);
  }
};
