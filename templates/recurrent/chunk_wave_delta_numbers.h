// GPU vocabulary of the chunked recurrence's gradients with the delta rule on matrix instructions of a wave: a token's gradient of beta, and its
// values' share of what flows past its gate. Part of a template.
#pragma once

// Rows of f32 of all heads' tokens: m, what tokens miss, and x, the gradient of what they write.
struct TokenRows {
  const float* missing;
  int64_t heads, values, all_tokens;

  // Of a token, a warp a head. flows: null, or [token][head].
  void finish(const View& v, const View& beta, const View& dbeta, int64_t beta_type, int64_t row, int64_t token, bool used, float* flows) const {
    for (int64_t head = warp(); head < heads; head += 4) {
      const float *m = missing + (block_x() * heads + head) * values, *x = m + all_tokens * heads * values;
      const Element* own = static_cast<const Element*>(v.data) + row * v.strides[0] + token * v.strides[1] + head / (heads / v.shape[2]) * v.strides[2];
      float of_beta = 0, of_values = 0;
      for (int64_t i = lane(); used && i < values; i += WARP) of_beta += x[i] * m[i], of_values += x[i] * to_float(own[i]);
#pragma unroll
      for (int mask = 1; mask < WARP; mask *= 2) of_beta += shuffle_xor(of_beta, mask), of_values += shuffle_xor(of_values, mask);
      if (lane() != 0) continue;
      if (is_given(dbeta)) GradientRow(dbeta, beta_type, row, token, head).store(0, of_beta);
      if (flows && used) flows[block_x() * heads + head] = number_at(beta.data, beta_type, row * beta.strides[0] + token * beta.strides[1] + head) * of_values;
    }
  }
};
