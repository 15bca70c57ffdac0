// flash_attention, forward, plain: rows by the definition, ROWS of them a warp. Takes every type, head dim, stride and option.
#include "device/gpu.h"
#include "device/attention/attention_plain.h"

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROWS = 4, FEATURES = 16;  // query rows a warp, features of each a lane
constexpr int BLOCK_M = WARPS * ROWS;   // query rows a block

// Block (x, y, z): BLOCK_M rows (packed: of all sequences; batched: of row z of the batch) of kv head y, the last rows first.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const int kv_head = block_y(), heads_a_kv_head = static_cast<int>(q.heads / k.heads);
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items = grid_x();
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, heads_a_kv_head, sequence, items)) return;
  const int64_t first_row = (items - 1 - item) * BLOCK_M, left = sequence.queries * heads_a_kv_head - first_row;
  __shared__ RowRange ranges[BLOCK_M];
  const Rows rows{ranges, static_cast<int>(first_row), static_cast<int>(left < BLOCK_M ? left : BLOCK_M), kv_head * heads_a_kv_head,
                  heads_a_kv_head};
  rows.find_ranges<THREADS, BLOCK_M>(Visibility{causal, window_left, window_right}, sequence);
  attend_plainly<THREADS, true, true, true, ROWS, FEATURES, true>(q, k, v, out, rules, sequence, softmax_aux_view, sinks_type, lse_view, rows, kv_head,
                          q_view.shape[q_view.rank - 1], v_view.shape[v_view.rank - 1], reinterpret_cast<float*>(dynamic_shared()), &weights_view);
}
