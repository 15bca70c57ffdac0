// mean_pooling, backward, on GPUs: every visible token of a row gets the row's gradient over its count of visible tokens; all others get 0.
// Every warp fills a part of the line of all tokens, whatever rows lie in it.
#include "device/gpu.h"
#include "mean_pooling/pooling_rows.h"
#include "mean_pooling/pooling_numbering.h"
#include "mean_pooling/pooling_counts.h"

$require vec * size(E) <= 16 and warps_c * warps_s <= 32
using Element = ${ctype(E)};
constexpr int VEC = ${vec};          // features a lane
constexpr int WARPS_C = ${warps_c};  // warps of a block side by side over the features
constexpr int WARPS_S = ${warps_s};  // and over the tokens
constexpr int UNROLL = ${unroll};    // tokens of a lane whose mask is read at once
constexpr int WARPS = WARPS_C * WARPS_S;
constexpr int BLOCKS = 20 / WARPS > 1 ? 20 / WARPS : 1;  // at least 16 resident warps per SM

// Packed chunks only.
KERNEL(NUMBERING_THREADS, 1) number_chunks(${parameters('number_chunks')}) {
  number_rows(cum_seqlens, first_row, N, chunk_size);
}

// With a mask only.
KERNEL(WARP * COUNT_WARPS, 1) count_visible(${parameters('count_visible')}) {
  count_parts({nullptr, nullptr, 0, 0, S, chunk_size}, mask, mask_stride, counts, rows, parts);
}

// What each visible token of the row gets.
static inline Pack<Element, VEC> share_of(const Element* dout, int64_t count) {
  const float divisor = static_cast<float>(larger(count, 1));
  Pack<Element, VEC> share = load_pack<VEC>(dout);
  for (int i = 0; i < VEC; ++i) share.at[i] = from_float<Element>(to_float(share.at[i]) / divisor);
  return share;
}

// Some tokens of a row; `side` lanes take them in turn, of which this one is number `turn`.
static inline void fill(Element* dx, const bool* mask, int tokens, int64_t C, int turn, int side, const Pack<Element, VEC>& share) {
  const int64_t step = side * C;
  Element* at = dx + turn * C;
  for (int t = turn; t < tokens; t += UNROLL * side, at += UNROLL * step) {
    bool visible[UNROLL];
    for (int u = 0; u < UNROLL; ++u) visible[u] = !MASKED || (t + u * side < tokens && mask[t + u * side]);
    for (int u = 0; u < UNROLL; ++u) {
      if (t + u * side >= tokens) break;
      store_once(at + u * step, visible[u] ? share : Pack<Element, VEC>{});
    }
  }
}

// Block x: column x % columns (features) of tile x / columns (WARPS_S * warp_tokens tokens). Its warps take warp_tokens tokens each, for
// `across` lanes' features.
KERNEL(WARP * WARPS, BLOCKS) mean_pooling_bwd(${parameters('mean_pooling_bwd')}) {
  const int column = block_x() % static_cast<int>(columns), lanes = static_cast<int>(across), side = WARP / lanes;
  const int64_t tile = block_x() / static_cast<int>(columns);
  const int64_t feature = ((static_cast<int64_t>(column) * WARPS_C + warp() % WARPS_C) * lanes + lane() % lanes) * VEC;
  const int64_t begin = (tile * WARPS_S + warp() / WARPS_C) * warp_tokens, end = smaller(begin + warp_tokens, token_count);
  if (begin >= end) return;

  const Line line{cum_seqlens, first_row, token_count, sequences, sequence_tokens, chunk_size};
  RowCursor rows(line, begin);
  for (int64_t t = begin;; rows.next()) {
    const int64_t stop = smaller(rows.end, end);
    const int64_t count = rows.row < 0 ? 0 : visible_tokens(rows, counts, parts);
    if (feature < C) {
      const int64_t row = PACKED ? rows.row : rows.row - rows.sequence * row_count;
      const Element* from = dout + (PACKED ? 0 : rows.sequence * dout_sequence_stride) + row * dout_row_stride + feature;
      Pack<Element, VEC> share = {};
      if (rows.row >= 0) share = share_of(from, count);
      const bool* visible = MASKED ? mask + rows.sequence * mask_stride + (t - rows.sequence_begin) : nullptr;
      fill(dx + t * C + feature, visible, static_cast<int>(stop - t), C, lane() / lanes, side, share);
    }
    t = stop;
    if (t >= end) break;
  }
}
