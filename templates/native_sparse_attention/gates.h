// Vocabulary of every backend: the gates of a query's branches, and where the logarithms of their sums go. Part of a template, which has defined
// Element before.
#pragma once

enum Branch { MEANS, BLOCKS, WINDOW };

static inline float gate_of(const View& gate, int64_t batch, int64_t token, int64_t head) {
  return to_float(static_cast<const Element*>(gate.data)[batch * gate.strides[0] + token * gate.strides[1] + head * gate.strides[2]]);
}

// branch_lse [B, Hq, 3, T].
static inline void store_branch_lse(const View& lse, int64_t batch, int64_t token, int64_t head, Branch branch, float value) {
  if (!is_given(lse)) return;
  static_cast<float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + branch * lse.strides[2] + token * lse.strides[3]] = value;
}
