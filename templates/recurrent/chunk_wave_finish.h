// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: the entry that adds up what heads share, and takes
// gradients through the rows' norms.
#pragma once
#include "recurrent/chunk_gamma_sum.h"

// Gradients of a token's rows from those of heads, a warp a row of up to 128 features. `second`: floats from a gradient's first part to another, if
// there is one.
template <bool SUMMED, bool THROUGH_NORMS>
static inline void finish_rows(const View& from, const View& to, const float* sums, int64_t heads, int64_t row, int64_t token, bool used,
                               int64_t second = 0) {
  if (used && !SUMMED) return;
  const int64_t own_heads = from.shape[2], readers = heads / own_heads;
  const int features = static_cast<int>(from.shape[3]);
  for (int64_t head = warp(); head < own_heads; head += 4) {
    const float* at = sums + (block_x() * heads + head * readers) * features;
    const Element* x = static_cast<const Element*>(from.data) + row * from.strides[0] + token * from.strides[1] + head * from.strides[2];
    float gradients[4] = {}, numbers[4] = {}, squares = 0, along = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = lane() + WARP * j;
      if (!used || i >= features) continue;
      for (int64_t reader = 0; reader < readers; ++reader) gradients[j] += at[reader * features + i];
      for (int64_t reader = 0; second > 0 && reader < readers; ++reader) gradients[j] += at[second + reader * features + i];
      if (THROUGH_NORMS) numbers[j] = to_float(x[i]);
      squares += numbers[j] * numbers[j], along += numbers[j] * gradients[j];
    }
    float norm = 1;
    if constexpr (THROUGH_NORMS) {
#pragma unroll
      for (int mask = 1; mask < WARP; mask *= 2) squares += shuffle_xor(squares, mask), along += shuffle_xor(along, mask);
      norm = rsqrt_of(squares + 1e-6f);
      along *= norm * norm;  // of the row's direction: it does not change the row over its norm
    }
    Element* place = static_cast<Element*>(to.data) + row * to.strides[0] + token * to.strides[1] + head * to.strides[2];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = lane() + WARP * j;
      if (i < features) place[i] = from_float<Element>(norm * (gradients[j] - (THROUGH_NORMS ? along * numbers[j] : 0)));
    }
  }
}

$if delta
#include "recurrent/chunk_wave_delta_numbers.h"

$end
// Block x: token x of all rows of the batch; tokens of no sequence get zeros.
KERNEL(128, 1) finish(${parameters('finish')}) {
  const int64_t length = q_view.shape[1], row = block_x() / length, token = block_x() % length;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];
  finish_rows<SUMS_OF_KEYS, NORMED>(q_view, dq_view, query_sums, heads, row, token, used);
$if delta
  finish_rows<true, NORMED>(k_view, dk_view, key_sums, heads, row, token, used, all_tokens * heads * k_view.shape[3]);
  const TokenRows rows{written_rows, heads, v_view.shape[3], all_tokens};
  rows.finish(v_view, beta_view, dbeta_view, beta_type, row, token, used, GATED ? token_flows : nullptr);
$else
  finish_rows<SUMS_OF_KEYS, NORMED>(k_view, dk_view, key_sums, heads, row, token, used);
$end
  finish_rows<SUMS_OF_VALUES, false>(v_view, dv_view, value_sums, heads, row, token, used);
  for (int64_t head = thread_x(); !used && is_given(dg_view) && head < heads; head += 128)
    GradientRow(dg_view, g_type, row, token, head).store(0, 0);
$if keyed
  for (int64_t i = thread_x(); !used && is_given(dgk_view) && i < heads * q_view.shape[3]; i += 128)
    GradientRow(dgk_view, gk_type, row, token, i / q_view.shape[3]).store(i % q_view.shape[3], 0);
$end
}
