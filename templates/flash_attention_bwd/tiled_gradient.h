// CPU vocabulary of attention's gradients by tiles of rows and blocks of keys: a call, and how gradients of keys leave the scratch.
#pragma once
#include "flash_attention_bwd/gradient_tile.h"
$if by_blocks  // blocksparse_attention_bwd
#include "blocksparse_attention/rows_ahead.h"
$end

template <class Element> struct GradientCall {
  Heads<const Element> q, k, v, dout;
  RowTable rows;
  ScoreRules rules;
  ${by_blocks ? 'BlockVisibility' : 'Visibility'} visibility;

  // Whether a score is more than a scaled product, or a weight may be dropped.
  bool has_options() const { return rules.adjusts() || rules.drop_threshold > 0; }
};

// LANES x LANES at a time: from[panel][feature][key], panels of WIDTH keys and `features` features, becomes rows of the first `dim`.
template <int64_t WIDTH, class Element>
static void store_keys(const Heads<Element>& to, const Sequence& s, int64_t kv_head, int64_t first, int64_t count, const float* from,
                       int64_t dim, int64_t features, float factor) {
  for (int64_t j = 0; j < count; j += LANES)
    for (int64_t d = 0; d < dim; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane)
        block[lane] = d + lane < dim ? load_floats(from + (j / WIDTH * features + d + lane) * WIDTH + j % WIDTH) * factor : Floats{};
      transpose(block);
      for (int lane = 0; lane < LANES && j + lane < count; ++lane)
        store_some(to.row(s.batch, s.first_key + first + j + lane, kv_head) + d, block[lane], dim - d);
    }
}
