// ragged_decode_attention, plain: rows by the definition (device/attention/attention_plain.h), ROWS of them a warp. Takes every type, head dim, stride
// and option.
#include "device/gpu.h"
#include "device/attention/attention_plain.h"
#include "ragged_decode_attention/one_token.h"

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROWS = 4, FEATURES = 16;  // query heads a warp, features of each a lane
constexpr int BLOCK_M = WARPS * ROWS;   // query heads a block

// Block (x, y): BLOCK_M query heads of kv head y of sequence x / groups.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const View none = not_given(), q_view = with_token(query_view, 1), one_out = with_token(out_view, 1), one_lse = with_token(lse_view, 2);
  const Heads<const Element> q(q_view), k(key_view), v(value_view);
  const Heads<Element> out(one_out);
  const ScoreRules rules{none, none, none, none, TYPE_F32, softmax_scale, logits_soft_cap, 0, 0, q.heads};
  const int kv_head = block_y(), heads = static_cast<int>(q.heads / k.heads), group_count = static_cast<int>(groups);
  const Sequence sequence = sequence_of(sequence_start, sequence_end, block_x() / group_count);
  const int first_row = block_x() % group_count * BLOCK_M, left = heads - first_row;
  __shared__ RowRange ranges[BLOCK_M];
  const Rows rows{ranges, first_row, left < BLOCK_M ? left : BLOCK_M, kv_head * heads, heads};
  rows.find_ranges<THREADS, BLOCK_M>(Visibility{false, window_left, -1}, sequence);
  attend_plainly<THREADS, false, true, false, ROWS, FEATURES>(q, k, v, out, rules, sequence, softmax_aux_view, sinks_type, one_lse, rows, kv_head,
                                                              query_view.shape[2], value_view.shape[3],
                                                              reinterpret_cast<float*>(dynamic_shared()));
}
