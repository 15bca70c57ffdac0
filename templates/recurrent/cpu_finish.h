// CPU vocabulary: what the sums of a recurrence's sweep become: gradients, added up over slices of v's features and heads that share a row.
#pragma once
#include "recurrent/cpu_gradient_rows.h"

// The gradient of a row of q or k: through its norm, if it was divided by that.
static void store_key_row(const Sums& sums, const GradientRow& to, const Row& row, int64_t keys, bool l2_norm, float* scratch) {
  if (!l2_norm) return store_row(to, sums, keys);
  Floats squares = {}, dots = {};
  for (int64_t i = 0; i < keys; i += LANES) {
    const Floats x = row.load(i), sum = sums.load(i, keys - i);
    squares += x * x, dots += x * sum;
    store_floats(scratch + i, sum);
  }
  const float inverse = rsqrt_of(sum_of(squares) + 1e-6f), dot = sum_of(dots) * inverse * inverse;
  for (int64_t i = 0; i < keys; i += LANES) to.store(i, inverse * (load_floats(scratch + i) - row.load(i) * dot), keys - i);
}

// Item (x, y): token x of row y of the batch.
static void finish(${parameters('finish')}, const Group& group) {
  const int64_t token = group.x, row = group.y, length = group.grid_x, keys = q_view.shape[3], values = v_view.shape[3];
  const int64_t at = row * length + token, width = 3 * keys + 2;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];
  const int64_t in_use = used ? slices : 0, one = used ? 1 : 0;  // nothing was written for the others
  const float* of_keys = key_sums + at * heads * width;
  const int64_t slice_stride = all_tokens * heads * width;
  const Tokens place{nullptr, 0, row, length};
  float* scratch = static_cast<float*>(group.shared);
  for (int which = 0; which < 2; ++which) {
    const bool is_k = which == 1;
    const View& from = is_k ? k_view : q_view;
    const int64_t own = from.shape[2], readers = own > 0 ? heads / own : 1;
    for (int64_t head = 0; head < own; ++head)
      store_key_row({of_keys + (is_k ? keys : 0), in_use, slice_stride, width, head * readers, readers},
                    GradientRow(is_k ? dk_view : dq_view, data_type, row, token, head),
                    Rows(from, data_type, place, head * readers, heads, 0, keys).row(token), keys, l2_norm && used, scratch);
  }
  const int64_t own = v_view.shape[2], readers = own > 0 ? heads / own : 1;
  for (int64_t head = 0; head < own; ++head) {
    const Sums sums{value_sums + at * heads * values, one, 0, values, head * readers, readers};
    const GradientRow to(dv_view, data_type, row, token, head);
    store_row(to, sums, values);
  }
  for (int64_t head = 0; head < heads; ++head) {
    const Sums sums{of_keys, in_use, slice_stride, width, head, 1};
    if (is_given(dg_view)) GradientRow(dg_view, g_type, row, token, head).store(0, sums.at(3 * keys));
    if (is_given(dbeta_view)) GradientRow(dbeta_view, beta_type, row, token, head).store(0, sums.at(3 * keys + 1));
    if (is_given(dgk_view)) store_row(GradientRow(dgk_view, gk_type, row, token, head), {of_keys + 2 * keys, in_use, slice_stride, width, head, 1}, keys);
    const Sums logs{VALUE_GATES ? value_gate_sums + at * heads * values : nullptr, one, 0, values, head, 1};
    if (is_given(dgv_view)) store_row(GradientRow(dgv_view, gv_type, row, token, head), logs, values);
  }
}

// Item x: the gradient of head x's g_gamma, over all tokens in use.
static void sum_gamma(${parameters('sum_gamma')}, const Group& group) {
  const int64_t head = group.x, heads = group.grid_x, used = cum_seqlens ? cum_seqlens[sequences] : all_tokens;
  double sum = 0;
  for (int64_t slice = 0; slice < slices; ++slice)
    for (int64_t token = 0; token < used; ++token)
      sum += key_sums[((slice * all_tokens + token) * heads + head) * (3 * keys + 2) + 3 * keys];
  GradientRow(dg_gamma_view, gamma_type, 0, 0, 0).store(head, static_cast<float>(sum));
}
