// CPU vocabulary of mla_attention, expanded: one head's keys and values, made of a block of latent rows. Part of a template, which has defined before: R,
// ROPE, OWN, VALUE, WIDTH, BLOCK_M, BLOCK_N, PANEL, VECTORS, Element.
#pragma once
#include "mla_attention/latent_rows.h"

struct KeyBlock {
  static constexpr int64_t VALUE_STEP = WIDTH;
  static constexpr int64_t KEY_PANELS = (OWN + WIDTH - 1) / WIDTH, PANELS = KEY_PANELS + (VALUE + WIDTH - 1) / WIDTH;
  static constexpr int64_t BLOCK = BLOCK_N * WIDTH;  // floats of WIDTH features of all keys
  float* weights;   // [PANELS][R][WIDTH]: the head's w_kc, then w_vc
  float* latents;   // [BLOCK_N][R]
  float* ropes;     // [BLOCK_N][ROPE]
  float* expanded;  // [PANELS][BLOCK_N][WIDTH]: keys, then values
  bool finite;

  void lay_out(float* scratch) {
    weights = scratch;
    latents = weights + PANELS * R * WIDTH;
    ropes = latents + BLOCK_N * R;
    expanded = ropes + BLOCK_N * ROPE;
  }
  void load_weights(const View& w, int64_t head, int64_t features, float* to) {
    for (int64_t r = 0; r < R; ++r) {
      const Element* from = weight_row<Element>(w, r, head);
      for (int64_t d = 0; d < features; d += LANES)
        store_floats(to + d / WIDTH * R * WIDTH + r * WIDTH + d % WIDTH, load_some(from + d, features - d));
      if (features % WIDTH != 0 && features % WIDTH <= LANES)  // the last vector, which has no feature
        store_floats(to + features / WIDTH * R * WIDTH + r * WIDTH + LANES, Floats{});
    }
  }
  void load_weights(const View& w_kc, const View& w_vc, int64_t head) {
    load_weights(w_kc, head, OWN, weights);
    load_weights(w_vc, head, VALUE, weights + KEY_PANELS * R * WIDTH);
  }

  void load(const LatentKeys& keys, int64_t first, int64_t count) {
    Finite seen;
    for (int64_t j = 0; j < count; ++j) {
      const LatentRow at = keys[first + j];
      load_row(at.latent, R, latents + j * R, seen);
      load_row(at.rope, ROPE, ropes + j * ROPE, seen);
    }
    alignas(64) float largest[WIDTH] = {};  // nobody asks for it
    for (int64_t panel = 0; panel < PANELS; ++panel)
      for (int64_t j = 0; j < count; j += PANEL)
        panel_product<PANEL, 2, R, 1, false>(latents + j * R, weights + panel * R * WIDTH, R, expanded + panel * BLOCK + j * WIDTH, largest);
    Finite values;
    for (int64_t panel = KEY_PANELS; panel < PANELS; ++panel)
      for (int64_t i = 0; i < count * WIDTH; i += LANES) values.see(load_floats(expanded + panel * BLOCK + i));
    finite = values.all();
  }
  void add_scores(const float* queries, int64_t j, float* scores) const {
    for (int64_t d = 0; d < OWN; d += WIDTH)
      panel_product<PANEL, VECTORS, WIDTH, 1, true>(expanded + d / WIDTH * BLOCK + j * WIDTH, queries + d * BLOCK_M, OWN - d < WIDTH ? OWN - d : WIDTH,
                                                    scores, nullptr);
    panel_product<PANEL, VECTORS, ROPE, 1, true>(ropes + j * ROPE, queries + OWN * BLOCK_M, ROPE, scores, nullptr);
  }
  const float* value(int64_t d) const { return expanded + (KEY_PANELS + d / WIDTH) * BLOCK + d % WIDTH; }
};
