// CPU vocabulary of mla_attention: one row times a head's weights. Part of a template, which has defined before: Element; and weight_row.
#pragma once
#include "device/number/math.h"

// to[r] = the sum over d of row[d] * w[r, head, d]; `own` has room for the row.
static void absorb(const Element* row, const View& w, int64_t head, float* own, float* to) {
  const int64_t latent = w.shape[0], features = w.shape[2];
  for (int64_t d = 0; d < features; ++d) own[d] = to_float(row[d]);
  for (int64_t r = 0; r < latent; ++r) {
    const Element* weights = weight_row<Element>(w, r, head);
    Floats sums = {};
    int64_t d = 0;
    for (; d + LANES <= features; d += LANES) sums += load_floats(own + d) * load_floats(weights + d);
    float sum = 0;
    for (; d < features; ++d) sum += own[d] * to_float(weights[d]);
    for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
    to[r] = sum;
  }
}

// to[d] = factor * the sum over r of values[r] * w[r, head, d], by way of `sums`.
static void project(const float* values, float factor, const View& w, int64_t head, float* sums, Element* to) {
  const int64_t features = w.shape[2];
  for (int64_t d = 0; d < features; ++d) sums[d] = 0;
  for (int64_t r = 0; r < w.shape[0]; ++r) {
    const Element* weights = weight_row<Element>(w, r, head);
    for (int64_t d = 0; d < features; ++d) sums[d] += values[r] * factor * to_float(weights[d]);
  }
  for (int64_t d = 0; d < features; ++d) to[d] = from_float<Element>(sums[d]);
}
