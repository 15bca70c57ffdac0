// GPU vocabulary of the attention kernels: what takes a row's weighted values to the output.
#pragma once
#include "device/attention/softmax.h"

// Of values that were summed relative to `part`, when `row` is the same with sinks.
static inline float scale_of(const Softmax& part, const Softmax& row) {
  return row.sum == 0 ? 0 : factor_of(part, row.reference) * reciprocal(row.sum);
}
