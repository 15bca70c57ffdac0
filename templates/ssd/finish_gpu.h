// ssd_bwd's last two launches, for templates/recurrent/backward.step.gpu.cu: what its sweep has summed becomes the gradients of ssd's operands.
#pragma once
#include "ssd/sum_head.h"

// A head's part of a token, by a warp: gradients of x and dt, and what the token adds to those of A, dt_bias and D.
static inline void finish_head(const SharedRow& sums, const float* of_values, const Steps& steps, const Numbers<Element>& b,
                               const Numbers<Element>& x, const Numbers<Element>& dout, float skip, int states, int features,
                               int64_t token, const GradientRow& dx, const GradientRow& ddt, float* added) {
  float d_step = 0, d_skip = 0;
  for (int n = lane(); n < states; n += WARP) d_step += b.at(token, n) * sums.at(states + n);
  for (int p = lane(); p < features; p += WARP) {
    const float dy = dout.at(token, p);
    dx.store(p, of_values[p] + skip * dy);
    d_skip += dy * x.at(token, p);
  }
  d_step = sum_over_parts(d_step), d_skip = sum_over_parts(d_skip);
  if (lane() != 0) return;
  const float d_log = sums.at(3 * states), d = (d_step + steps.rate * d_log) * steps.slope(token);
  ddt.store(0, d);
  added[0] = steps.at(token) * d_log, added[1] = d, added[2] = d_skip;
}

// Block x: token x of all rows of the batch. A warp has every fourth head, then every fourth group.
KERNEL(128, 1) finish(${parameters('finish')}) {
  const int64_t length = x_view.shape[1], row = block_x() / length, token = block_x() % length, groups = C_view.shape[2];
  const int states = static_cast<int>(C_view.shape[3]), features = static_cast<int>(x_view.shape[3]), width = 3 * states + 2;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];  // nothing was written for the others
  const float* of_keys = key_sums + block_x() * heads * width;
  const Tokens place(nullptr, 0, row, length);
  const auto sums_of = [&](int64_t head) { return SharedRow{of_keys, slices, all_tokens * heads * width, width, head, 1}; };
  const auto steps_of = [&](int64_t head) {
    return Steps{{dt_view, dt_type, place, head, 0}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus};
  };
  for (int64_t head = warp(); head < heads; head += 4) {
    const GradientRow dx(dx_view, data_type, row, token, head), ddt(ddt_view, dt_type, row, token, head);
    if (used) {
      finish_head(sums_of(head), value_sums + (block_x() * heads + head) * features, steps_of(head), {Bm_view, place, head, heads, 0},
                  {x_view, place, head, heads, 0}, {dout_view, place, head, heads, 0}, number_of_head(D_view, d_type, head), states, features,
                  token, dx, ddt, head_sums + (block_x() * heads + head) * 3);
    } else {
      for (int p = lane(); p < features; p += WARP) dx.store(p, 0);
      if (lane() == 0) ddt.store(0, 0);
    }
  }
  const int64_t readers = heads / groups;
  for (int64_t shared = warp(); shared < groups; shared += 4) {
    const GradientRow db(dBm_view, data_type, row, token, shared), dc(dC_view, data_type, row, token, shared);
    for (int n = lane(); n < states; n += WARP) {
      float b = 0, c = 0;
      for (int64_t head = shared * readers; used && head < (shared + 1) * readers; ++head)
        c += sums_of(head).at(n), b += steps_of(head).at(token) * sums_of(head).at(states + n);
      db.store(n, b);
      dc.store(n, c);
    }
  }
}

// Block x: the gradients of head x's A, dt_bias and D, over all tokens in use.
KERNEL(256, 1) sum_heads(${parameters('sum_heads')}) {
  sum_head(head_sums, cum_seqlens ? cum_seqlens[sequences] : all_tokens, heads, {{dA_view, a_type}, {ddt_bias_view, bias_type}, {dD_view, d_type}});
}
