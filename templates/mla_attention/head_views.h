// GPU vocabulary of mla_attention by expanded keys, on flash_attention's templates: views of some heads.
#pragma once
#include "device/gpu.h"

static inline View no_view() {
  View none;
  none.data = nullptr, none.rank = -1;
  return none;
}

// [batches, tokens, heads, features] by strides of a batch's row, a token and a head.
static inline View head_view(const void* data, int64_t batches, int64_t tokens, int64_t heads, int64_t features, int64_t batch_stride, int64_t token_stride,
                             int64_t head_stride) {
  View view;
  view.data = const_cast<void*>(data), view.rank = 4;
  view.shape[0] = batches, view.shape[1] = tokens, view.shape[2] = heads, view.shape[3] = features;
  view.strides[0] = batch_stride, view.strides[1] = token_stride, view.strides[2] = head_stride, view.strides[3] = 1;
  return view;
}

// Heads [first, first + heads) of a tensor [batches, tokens, all heads, features].
template <class T> static inline View heads_from(const View& all, int64_t first, int64_t heads) {
  return head_view(static_cast<const T*>(all.data) + first * all.strides[2], all.shape[0], all.shape[1], heads, all.shape[3], all.strides[0], all.strides[1], all.strides[2]);
}

// Of workspace [batches, tokens, slots, features] the first `heads` slots.
static inline View slot_view(const void* data, int64_t batches, int64_t tokens, int64_t heads, int64_t slots, int64_t features) {
  return head_view(data, batches, tokens, heads, features, tokens * slots * features, slots * features, features);
}

// LSE of `heads` heads.
static inline View logs_view(float* data, int64_t batches, int64_t heads, int64_t tokens, int64_t batch_stride, int64_t head_stride) {
  View view;
  view.data = data, view.rank = 3;
  view.shape[0] = batches, view.shape[1] = heads, view.shape[2] = tokens;
  view.strides[0] = batch_stride, view.strides[1] = head_stride, view.strides[2] = 1;
  return view;
}
// The same, or nothing.
static inline View lse_view_of(float* data, int64_t batches, int64_t heads, int64_t tokens, int64_t batch_stride, int64_t head_stride) {
  return data ? logs_view(data, batches, heads, tokens, batch_stride, head_stride) : no_view();
}
