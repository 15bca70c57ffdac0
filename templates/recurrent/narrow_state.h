// CPU vocabulary: one head's state of bf16 in memory, f32 in panels or registers.
#pragma once
#include "recurrent/recurrent_rows.h"

static inline void store_floats(bfloat16* to, Floats x) { store_elements(to, x); }

struct NarrowState {
  bfloat16* data;
  int64_t stride, count;

  NarrowState(const View& view, int64_t sequence, int64_t head, int64_t start, int64_t count)
      : data(static_cast<bfloat16*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + start), stride(view.strides[2]), count(count) {}
  // To and from panels [WIDTH / PANEL][keys][PANEL].
  template <int64_t WIDTH, int64_t PANEL>
  void load(float* to, int64_t keys) const {
    for (int64_t x = 0; x < WIDTH; x += LANES)
      for (int64_t i = 0; i < keys; ++i)
        store_floats(to + (x / PANEL * keys + i) * PANEL + x % PANEL, load_some(data + i * stride + x, count - x));
  }
  template <int64_t WIDTH, int64_t PANEL>
  void store(const float* from, int64_t keys) const {
    for (int64_t x = 0; x < WIDTH && x < count; x += LANES)
      for (int64_t i = 0; i < keys; ++i)
        store_some(data + i * stride + x, load_floats(from + (x / PANEL * keys + i) * PANEL + x % PANEL), count - x);
  }
};
