// Hopper vocabulary of the attention kernels' gradients: the launches before and after blocks of keys. At the end of a template, which says
// what they work on: Element, D, DV, BLOCK_M, PACKED; CallGradients, CallWeights, Block, List, Order, DS_UNSCALED, OWNS_QUERIES, MENDS and NARROWS; and by
// how many threads.
#pragma once
#include "device/tile/launch_order.h"
#include "flash_attention_bwd/sm90_attention_gradient.h"
#include "flash_attention_bwd/sm90_attention_list.h"
#include "flash_attention_bwd/sm90_attention_order.h"
#include "flash_attention_bwd/sm90_attention_gradient_segments.h"

$if by_blocks
// Clears counters, and makes the list of blocks of keys.
KERNEL(LIST_THREADS, 1) list_keys(${parameters('list_keys')}) {
  let_next_launch_go();
  const Heads<const Element> q(q_view), k(k_view);
$if packed
  const MaskedSequences sequences{{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset}, block_mask_view, steps_a_block * BLOCK_M, block_k};
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr};
$end
  clear_counters<LIST_THREADS>(broken, broken_blocks, grid_x());
  clear_counters<LIST_THREADS>(added, ${ordered ? '1' : 'added_count'}, grid_x());
  clear_counters<LIST_THREADS>(finished, finished_count, grid_x());
  wait_for_previous_launch();
$if ordered
  const TurnRanks ranks{turn_ranks, block_mask_view, static_cast<int>(list_words), static_cast<int>(steps_a_block), static_cast<int>(block_k / BLOCK_N)};
  const BlockVisibility visibility{causal, window_left, window_right, chunk_size, &block_mask_view, steps_a_block * BLOCK_M, block_k};
  start_counts<LIST_THREADS, BLOCK_M, GROUPS>(added + 1, added_count - 1, ranks, visibility, sequences, q.heads, space_rows);
$end
  List{sequences, {causal, window_left, window_right${chunked ? ', chunk_of(chunk_size)' : ''}}, {q.heads, space_rows, BLOCK_M, PACKED}, static_cast<int>(k.heads), static_cast<int>(heads_together), static_cast<int>(key_blocks)}
      .write<LIST_THREADS, OWNS_QUERIES>(reinterpret_cast<List::Entry*>(listed), listed_count, grid_x(), [&](Block& block) {
        if constexpr (SEGMENTED) SegmentIds(q_segment_ids_view, kv_segment_ids_view, q.tokens, k.tokens).narrow<!ORDERED && !OWNS_QUERIES>(block);
        const StepList<3> list{query_list, block_mask_view, static_cast<int>(list_words), static_cast<int>(block_k), static_cast<int>(steps_a_block)};
        block.lists.find(list, block, static_cast<int>(q.heads / k.heads));
$if ordered
        block.lists.rank(ranks, list, block);
$end
        RowCounts<BLOCK_M>{awaited}.add<WARP>(block, static_cast<int>(q.heads / k.heads), -1);
      });
}

// Beside it, rows' log-sum-exps, deltas, and sums of dq of the first heads, at 0.
KERNEL(PREPARE_THREADS, 2) prepare(${parameters('prepare')}) {
  let_next_launch_go();
  const Heads<const Element> q(q_view), k(k_view);
$if packed
  int64_t first_row;
  const Sequence sequence = sequence_of_rows<BLOCK_M>(Sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset}, block_x(), first_row);
  const int first = static_cast<int>(first_row), head = block_y();
  const int64_t at = head * space_rows + int64_t{block_x()} * BLOCK_M;
  if (head == 0 && thread_x() == 0) reinterpret_cast<TileTokens*>(tile_tokens)[block_x()] = TileTokens::of<BLOCK_M>(sequence, first_row);
$else
  const Sequence sequence = Sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                                      BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr}[block_z()];
  if constexpr (SEGMENTED)
    SegmentIds(q_segment_ids_view, kv_segment_ids_view, q.tokens, k.tokens)
        .copy<PREPARE_THREADS, BLOCK_M>(row_segments, key_segments, key_blocks * BLOCK_N);
  const int first = block_x() * BLOCK_M, head = block_y();
  const int64_t at = RowSpace{q.heads, space_rows, BLOCK_M, PACKED}.first(sequence, head) + first;
$end
  RowPreparer<Element, DV, BLOCK_M, PREPARE_THREADS, DROPPED>{sequence, head, first}.run(out_view, dout_view, lse_view, row_lse + at, row_delta + at, kept_part);
  if (at < heads_cleared * (q.heads / k.heads) * space_rows)
#pragma unroll
    for (int i = thread_x() * 4; i < BLOCK_M * Sums::FEATURES; i += PREPARE_THREADS * 4) store_pack(dq_sums + at * Sums::FEATURES + i, Pack<float, 4>{});
  wait_for_previous_launch();
}
$else
// Clears counters; makes the list of blocks of keys; rows' log-sum-exps, deltas, and sums of dq, at 0.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
$if latent
  TURN_ARGUMENTS
$end
  let_next_launch_go();
  const Heads<const Element> q(q_view), k(k_view);
  const Sequences sequences{PACKED ? cum_seqlens_q : nullptr,      PACKED ? cum_seqlens_k : nullptr,          sequence_count, q.tokens, k.tokens, offset_given, offset,
                            BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr};
  const RowSpace space{q.heads, space_rows, BLOCK_M, PACKED};
  List{sequences, {causal, window_left, window_right}, space, static_cast<int>(k.heads), static_cast<int>(heads_together), static_cast<int>(key_blocks),
       CallWeights::BIASED ? static_cast<int>(batches_together) : 1}
      .write<PREPARE_THREADS, OWNS_QUERIES>(reinterpret_cast<List::Entry*>(listed), listed_count, grid_blocks, [&](Block& block) {
        if constexpr (SEGMENTED) SegmentIds(q_segment_ids_view, kv_segment_ids_view, q.tokens, k.tokens).narrow<!ORDERED && !OWNS_QUERIES>(block);
        if constexpr (NARROWS) narrow_steps(block, attention_mask_view, tiles_seen, static_cast<int>(q.heads / k.heads), key_blocks);
$if slides
        slide_turns(block, {causal, window_left, window_right});
$end
      });
  if constexpr (SEGMENTED)
    SegmentIds(q_segment_ids_view, kv_segment_ids_view, q.tokens, k.tokens)
        .copy<PREPARE_THREADS, BLOCK_M>(row_segments, key_segments, key_blocks * BLOCK_N);
  clear_counters<PREPARE_THREADS>(broken, broken_blocks, grid_blocks);
  clear_counters<PREPARE_THREADS>(added, added_count, grid_blocks);
  clear_counters<PREPARE_THREADS>(finished, finished_count, grid_blocks);
$if latent
  if (block_y() >= q.heads) return;
  CallGradients{sequences, space, row_lse, row_delta, dq_sums}.prepare<PREPARE_THREADS, !OWNS_QUERIES>(
      heads_from<Element>(out_view, turn_heads.first, turn_heads.count), dout_view, logs_from(lse_view, turn_heads.first, turn_heads.count));
$else
  CallGradients{sequences, space, row_lse, row_delta, dq_sums}.prepare<PREPARE_THREADS, !OWNS_QUERIES>(out_view, dout_view, lse_view, kept_part);
$end
}
$end

$if takes_bias
// Faint rows, after the log-sum-exps. Block (x, y, z): BLOCK_M rows x of head y of row z of the batch.
KERNEL(PREPARE_THREADS, 1) mark_faint(${parameters('mark_faint')}) {
  let_next_launch_go();
  wait_for_previous_launch();
  const Heads<const Element> q(q_view), k(k_view);
  const Sequence sequence = Sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths, key_value_seq_lengths}[block_z()];
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, 0, 0, 0, 0, q.heads};
  const int64_t first = block_x() * BLOCK_M, at = RowSpace{q.heads, space_rows, BLOCK_M, false}.first(sequence, block_y()) + first;
  mark_faint_rows<PREPARE_THREADS / WARP>(rules, {causal, window_left, window_right}, sequence, lse_view, block_y(), first, BLOCK_M,
                                          DROPPED ? log_of(kept_part) * LOG2_E : 0, row_lse + at);
}
$end

// dq from its sums; and dk and dv of keys that are broken.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
$if latent
  TURN_ARGUMENTS
$end
  wait_for_previous_launch();
  const Heads<const Element> q(q_view), k(k_view), v(v_view), ${latent ? 'dout_rows' : 'dout'}(dout_view);
$if by_blocks and packed
  const MaskedSequences sequences{{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset}, block_mask_view, block_q, block_k};
$else
  const Sequences sequences{PACKED ? cum_seqlens_q : nullptr,      PACKED ? cum_seqlens_k : nullptr,          sequence_count, q.tokens, k.tokens, offset_given, offset,
                            BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr};
$end
  const CallGradients gradients{sequences, {q.heads, space_rows, BLOCK_M, PACKED}, row_lse, row_delta, dq_sums};
  const ${by_blocks ? 'BlockVisibility' : 'Visibility'} visibility{causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}};
  const int64_t blocks = MENDS ? grid_x() : grid_blocks;
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap, drop_threshold,
                         static_cast<uint64_t>(dropout_seed), q.heads};
  const auto plain = [&](const Sequence& sequence) {
    return CallGradients::Plain{q, k, v, ${latent ? 'dout_rows' : 'dout'}, rules, visibility, sequence, row_lse, row_delta, gradients.space, D, DV, CallGradients::plain_memory()};
  };
  if constexpr (MENDS)
    gradients.mend<FINISH_THREADS, Order::CHAIN_COUNT>(Heads<Element>(dq_view), added + 1, blocks, plain);
  else
    gradients.finish<FINISH_THREADS>(Heads<Element>(dq_view), softmax_scale * DS_UNSCALED, hides, plain);
  if (hides)
    gradients.repair<FINISH_THREADS, Block>(broken, broken_blocks, key_blocks, blocks, ${chunked ? 'ChunkVisibility{causal, window_left, window_right, chunk_of(chunk_size)}' : 'visibility'}, Heads<Element>(dk_view), Heads<Element>(dv_view), plain);
}
$if not latent

KERNEL(256, 1) differentiate_sinks(${parameters('differentiate_sinks')}) {
  const Heads<const Element> q(q_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, 0, true, 0};
  differentiate_sink<256>(softmax_aux_view, dsoftmax_aux_view, sinks_type, block_x(), sequences, {q.heads, space_rows, BLOCK_M, PACKED}, row_lse,
                          row_delta);
}
$end
