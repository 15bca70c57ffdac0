// GPU vocabulary of the attention kernels: parts of a row, each relative to a reference of its own, become one.
#pragma once
#include "device/attention/softmax.h"

// A lane's PACKS packs of 4 features, relative to softmax.reference.
template <int PACKS> struct PartSum {
  Softmax softmax;
  float x[PACKS][4];

  template <int COUNT> void add(const Softmax (&one)[COUNT], const Pack<float, 4> (&parts)[COUNT][PACKS]) {
    float reference = softmax.reference;
#pragma unroll
    for (int u = 0; u < COUNT; ++u) reference = larger_of(reference, one[u].reference);
    const float kept = factor_of(softmax, reference);
    softmax = {reference, softmax.sum * kept};
#pragma unroll
    for (int i = 0; i < PACKS; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) x[i][k] *= kept;
#pragma unroll
    for (int u = 0; u < COUNT; ++u) {
      const float factor = factor_of(one[u], reference);
      softmax.sum += one[u].sum * factor;
#pragma unroll
      for (int i = 0; i < PACKS; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) x[i][k] += parts[u][i].at[k] * factor;
    }
  }
};
