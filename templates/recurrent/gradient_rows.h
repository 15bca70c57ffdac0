// GPU vocabulary of a recurrence's gradient: where gradients go, and sums of what heads share.
#pragma once
#include "recurrent/recurrent_step.h"

// A row of a gradient [batch, tokens, heads, features] or [batch, tokens, heads], of a type known at run time.
struct GradientRow {
  void* data;
  int64_t type, base;
  GradientRow(const View& view, int64_t type, int64_t row, int64_t token, int64_t head)
      : data(view.data), type(type),
        base(row * view.strides[0] + token * view.strides[1] + head * (view.rank > 3 ? view.strides[2] : 1)) {}
  void store(int64_t i, float x) const {
    if (type == 0) static_cast<float*>(data)[base + i] = x;
    else if (type == 1) static_cast<half*>(data)[base + i] = from_float<half>(x);
    else static_cast<bfloat16*>(data)[base + i] = from_float<bfloat16>(x);
  }
};
