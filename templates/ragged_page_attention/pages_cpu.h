// CPU vocabulary of ragged_page_attention: keys and values in pages [page, slot, 2 * kv head + 0 or 1, feature], and scales. Part of a template, which
// has defined Cached before.
#pragma once

// Of one sequence and kv head. Strides in elements.
struct RaggedPages {
  const Cached *keys, *values;
  const int32_t* table;
  int64_t page_stride, slot_stride, size;

  int64_t place(int64_t key) const { return table[key / size] * page_stride + key % size * slot_stride; }
};

// One number a kv head, or one for all; 1 if there are none.
struct Scales {
  const float* data;
  int64_t stride;
  float operator[](int64_t kv_head) const { return data ? data[kv_head * stride] : 1; }
};
