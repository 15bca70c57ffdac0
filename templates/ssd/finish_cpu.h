// ssd_bwd's last two launches, for templates/recurrent/backward.cpu.cpp: what its sweep has summed becomes the gradients of ssd's operands.

// Item (x, y): token x of row y of the batch.
static void finish(${parameters('finish')}, const Group& group) {
  const int64_t token = group.x, row = group.y, length = group.grid_x, at = row * length + token;
  const int64_t states = C_view.shape[3], features = x_view.shape[3], groups = C_view.shape[2], readers = groups > 0 ? heads / groups : 1;
  const int64_t width = 3 * states + 2, slice_stride = all_tokens * heads * width;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];  // nothing was written for the others
  const int64_t in_use = used ? slices : 0;
  const float *of_keys = key_sums + at * heads * width, *of_values = value_sums + at * heads * features;
  const Tokens place{nullptr, 0, row, length};
  const auto sums_of = [&](int64_t head) { return Sums{of_keys, in_use, slice_stride, width, head, 1}; };
  float* steps = static_cast<float*>(group.shared);
  for (int64_t head = 0; head < heads; ++head) {
    const Steps own{{dt_view, dt_type, place, head}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head),
                    dt_softplus};
    const Rows b(Bm_view, data_type, place, head, heads, 0, states);
    const Sums sums = sums_of(head);
    double d_step = 0, d_log = sums.at(3 * states), d_skip = 0;
    for (int64_t n = 0; used && n < states; ++n) d_step += static_cast<double>(number_at(b.row(token).data, data_type, n)) * sums.at(states + n);
    const Rows x(x_view, data_type, place, head, heads, 0, features), dout(dout_view, data_type, place, head, heads, 0, features);
    const float skip = number_of_head(D_view, d_type, head);
    const GradientRow dx(dx_view, data_type, row, token, head);
    for (int64_t p = 0; p < features; ++p) {
      const float dy = used ? number_at(dout.row(token).data, data_type, p) : 0;
      dx.store(p, used ? of_values[head * features + p] + skip * dy : 0);
      d_skip += used ? static_cast<double>(dy) * number_at(x.row(token).data, data_type, p) : 0;
    }
    steps[head] = used ? own.at(token) : 0;
    const float ddt = used ? static_cast<float>((d_step + own.rate * d_log) * own.slope(token)) : 0;
    GradientRow(ddt_view, dt_type, row, token, head).store(0, ddt);
    float* added = head_sums + (at * heads + head) * 3;
    added[0] = static_cast<float>(steps[head] * d_log), added[1] = ddt, added[2] = static_cast<float>(d_skip);
  }
  for (int64_t shared = 0; shared < groups; ++shared) {
    const GradientRow db(dBm_view, data_type, row, token, shared), dc(dC_view, data_type, row, token, shared);
    for (int64_t n = 0; n < states; ++n) {
      double b = 0, c = 0;
      for (int64_t head = shared * readers; head < (shared + 1) * readers; ++head)
        c += sums_of(head).at(n), b += static_cast<double>(steps[head]) * sums_of(head).at(states + n);
      db.store(n, static_cast<float>(b));
      dc.store(n, static_cast<float>(c));
    }
  }
}

// Item x: the gradients of head x's A, dt_bias and D, over all tokens in use.
static void sum_heads(${parameters('sum_heads')}, const Group& group) {
  const int64_t head = group.x, used = cum_seqlens ? cum_seqlens[sequences] : all_tokens;
  double sums[3] = {};
  for (int64_t token = 0; token < used; ++token)
    for (int i = 0; i < 3; ++i) sums[i] += head_sums[(token * heads + head) * 3 + i];
  GradientRow(dA_view, a_type, 0, 0, 0).store(head, static_cast<float>(sums[0]));
  if (is_given(ddt_bias_view)) GradientRow(ddt_bias_view, bias_type, 0, 0, 0).store(head, static_cast<float>(sums[1]));
  if (is_given(dD_view)) GradientRow(dD_view, d_type, 0, 0, 0).store(head, static_cast<float>(sums[2]));
}
