// GPU vocabulary of the chunked recurrence's gradient: the entries that add up what chunks and heads share. Part of a template, which has
// defined SHARED_HEADS before.
#pragma once
#include "recurrent/chunk_gamma_sum.h"

// Block x: token x of all rows of the batch, whose heads' gradients are added up; tokens of no sequence get zeros.
KERNEL(128, 1) finish(${parameters('finish')}) {
  const int64_t length = q_view.shape[1], row = block_x() / length, token = block_x() % length;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];
  if (used && !SHARED_HEADS) return;
  const auto add_heads = [&](const View& from, const View& to, const float* sums) {
    const int64_t own_heads = from.shape[2], features = from.shape[3], readers = heads / own_heads;
    for (int64_t i = thread_x(); i < own_heads * features; i += 128) {
      const int64_t head = i / features, feature = i % features;
      const float* at = sums + (block_x() * heads + head * readers) * features + feature;
      float sum = 0;
      for (int64_t reader = 0; used && reader < readers; ++reader) sum += at[reader * features];
      Element* place = static_cast<Element*>(to.data) + row * to.strides[0] + token * to.strides[1] + head * to.strides[2];
      place[feature] = from_float<Element>(sum);
    }
  };
  add_heads(q_view, dq_view, query_sums);
  add_heads(k_view, dk_view, key_sums);
  add_heads(v_view, dv_view, value_sums);
  for (int64_t head = thread_x(); !used && is_given(dg_view) && head < heads; head += 128)
    GradientRow(dg_view, g_type, row, token, head).store(0, 0);
$if keyed
$if exchanged
  for (int64_t i = thread_x(); !used && is_given(dgv_view) && i < heads * v_view.shape[3]; i += 128)
    GradientRow(dgv_view, gv_type, row, token, i / v_view.shape[3]).store(i % v_view.shape[3], 0);
$else
  for (int64_t i = thread_x(); !used && is_given(dgk_view) && i < heads * q_view.shape[3]; i += 128)
    GradientRow(dgk_view, gk_type, row, token, i / q_view.shape[3]).store(i % q_view.shape[3], 0);
$end
$end
$if delta
  for (int64_t head = thread_x(); !used && is_given(dbeta_view) && head < heads; head += 128)
    GradientRow(dbeta_view, beta_type, row, token, head).store(0, 0);
$end
}
