// CPU vocabulary of mla_attention, absorbed: the launches before and after attention. An image of the expanded form has them, too, and never launches them.
#pragma once

constexpr int64_t TURN = 64;                        // latent features of a work item of `absorb`
constexpr int64_t OWN_PITCH = (OWN + LANES - 1) / LANES * LANES;
constexpr int64_t PART = R + 2;                     // of a row's keys: its largest score, its sum of weights, its weighted latent features
constexpr int ROWS = 4;                             // of a work item of `project`

// Item (x, y): latent features from x * TURN on of the queries of head y, all of them: to[query][head][R].
static void absorb(${parameters('absorb')}, const Group& group) {
  float *const weights = static_cast<float*>(group.shared), *const own = weights + TURN * OWN_PITCH;
  const int64_t first = group.x * TURN, count = smaller(TURN, R - first);
  for (int64_t r = 0; r < TURN; ++r)
    for (int64_t d = 0; d < OWN_PITCH; d += LANES)
      store_floats(weights + r * OWN_PITCH + d, r < count ? load_some(weight_row<Element>(w_kc_view, first + r, group.y) + d, OWN - d) : Floats{});
  for (int64_t query = 0; query < sequences * queries; ++query) {
    const Element* row = row_of<const Element>(q_nope_view, query / queries, query % queries, group.y);
    for (int64_t d = 0; d < OWN_PITCH; d += LANES) store_floats(own + d, load_some(row + d, OWN - d));
    float* to = absorbed_queries + (query * group.grid_y + group.y) * R + first;
    for (int64_t r = 0; r < count; r += LANES) {
      Floats sums[LANES] = {};
      for (int64_t d = 0; d < OWN_PITCH; d += LANES) {
        const Floats q = load_floats(own + d);
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; ++lane) sums[lane] += q * load_floats(weights + (r + lane) * OWN_PITCH + d);
      }
      store_some(to + r, row_sums(sums), count - r);
    }
  }
}

// The parts of a row become its latent features, weighted and divided; returns its LSE.
static float merge(const float* from, int64_t parts, float* to) {
  float maximum = -INFINITE, sum = 0;
  for (int64_t part = 0; part < parts; ++part) maximum = from[part * PART] > maximum ? from[part * PART] : maximum;
  const float base = maximum == -INFINITE ? 0 : maximum;
  for (int64_t r = 0; r < R; ++r) to[r] = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const float* at = from + part * PART;
    if (at[1] == 0) continue;  // saw nothing
    // at[0] of -inf has a sum only where a score is NaN
    const float factor = at[0] == -INFINITE ? 1 : exp2_of(splat(at[0] - base))[0];
    sum += at[1] * factor;
    for (int64_t r = 0; r < R; ++r) to[r] += at[2 + r] * factor;
  }
  const float factor = sum == 0 ? 0 : 1 / sum;
  for (int64_t r = 0; r < R; ++r) to[r] *= factor;
  return base * LN_2 + log_of(splat(sum))[0];
}

// Item (x, y): queries [x * ROWS, x * ROWS + ROWS) of all sequences, head y.
static void project(${parameters('project')}, const Group& group) {
  float* const latents = static_cast<float*>(group.shared);  // [ROWS][R]
  const int64_t first = group.x * ROWS, rows = smaller(ROWS, sequences * queries - first);
  for (int64_t row = 0; row < ROWS; ++row) {
    if (row >= rows) {
      __builtin_memset(latents + row * R, 0, R * sizeof(float));
      continue;
    }
    const float lse = merge(partial + ((first + row) * group.grid_y + group.y) * parts * PART, parts, latents + row * R);
    if (is_given(lse_view)) *lse_place(lse_view, (first + row) / queries, (first + row) % queries, group.y) = lse;
  }
  for (int64_t d = 0; d < VALUE; d += LANES) {
    Floats sums[ROWS] = {};
    for (int64_t r = 0; r < R; ++r) {
      const Floats weights = load_some(weight_row<Element>(w_vc_view, r, group.y) + d, VALUE - d);
#pragma GCC unroll 4
      for (int row = 0; row < ROWS; ++row) sums[row] += weights * latents[row * R + r];
    }
    for (int row = 0; row < rows; ++row)
      store_some(row_of<Element>(out_view, (first + row) / queries, (first + row) % queries, group.y) + d, sums[row], VALUE - d);
  }
}
