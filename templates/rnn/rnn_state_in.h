// GPU vocabulary: a row's state, or memory, of a feature on.
#pragma once

static inline float* state_in(const View& view, int64_t direction, int64_t row, int64_t feature) {
  return static_cast<float*>(view.data) + direction * view.strides[0] + row * view.strides[1] + feature;
}
