// GPU vocabulary: store_turned(to, pitch, words), eight 16-bit elements of a row of a matrix, into shared memory, where they lie `pitch`
// bytes apart.
#pragma once
#include "device/gpu.h"

static inline void store_turned(SharedPointer to, int pitch, const Pack<uint32_t, 4>& words) {
#pragma unroll
  for (int j = 0; j < 8; ++j) *shared_at<uint16_t>(to + j * pitch) = static_cast<uint16_t>(words.at[j / 2] >> (j % 2 * 16));
}
