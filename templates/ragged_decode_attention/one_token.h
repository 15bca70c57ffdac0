// Vocabulary of every backend: a call of ragged_decode_attention in the terms of flash_attention, whose plain rows it shares: one query token a
// sequence, which is the last of the keys that it may see.
#pragma once
#include "device/attention/attention.h"

// The view with one more dimension, of size 1, as dimension `at`.
static inline View with_token(const View& view, int64_t at) {
  if (!is_given(view)) return view;
  View more = view;
  more.rank = view.rank + 1;
  for (int64_t i = view.rank; i > at; --i) more.shape[i] = view.shape[i - 1], more.strides[i] = view.strides[i - 1];
  more.shape[at] = 1, more.strides[at] = 0;
  return more;
}

static inline View not_given() { return {nullptr, -1, {}, {}}; }

// Keys [starts[n], ends[n]) of row n of the batch.
static inline Sequence sequence_of(const int32_t* starts, const int32_t* ends, int64_t n) {
  const int64_t start = starts[n], keys = ends[n] > start ? ends[n] - start : 0;
  return {n, n, 0, start, 1, keys, keys - 1, false, 0};
}
