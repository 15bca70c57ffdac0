// CPU vocabulary of mla_attention, absorbed: a block of keys whose first R features are the values. Part of a template, which has defined before: R, ROPE,
// KEY, BLOCK_M, BLOCK_N, PANEL, VECTORS, Element.
#pragma once
#include "mla_attention/latent_rows.h"

struct KeyBlock {
  static constexpr int64_t VALUE_STEP = KEY;
  float* rows;  // [BLOCK_N][KEY], and room for a panel more
  bool finite;

  void load(const LatentKeys& keys, int64_t first, int64_t count) {
    Finite seen;
    for (int64_t j = 0; j < count; ++j) {
      const LatentRow at = keys[first + j];
      load_row(at.latent, R, rows + j * KEY, seen);
      Finite rope;
      load_row(at.rope, ROPE, rows + j * KEY + R, rope);
    }
    finite = seen.all();
  }
  void add_scores(const float* queries, int64_t j, float* scores) const {
    panel_product<PANEL, VECTORS, KEY, 1, true>(rows + j * KEY, queries, KEY, scores, nullptr);
  }
  const float* value(int64_t d) const { return rows + d; }
};
