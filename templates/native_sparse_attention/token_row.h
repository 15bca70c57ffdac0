// GPU vocabulary: where a head of a token lies.
#pragma once
#include "device/gpu.h"

// A row of [B, T, H, features]. Not by Heads, which keeps strides in registers.
template <class T>
static inline T* token_row(const View& view, int64_t batch, int64_t token, int64_t head) {
  return static_cast<T*>(view.data) + batch * view.strides[0] + token * view.strides[1] + head * view.strides[2];
}
