// blocksparse_attention, forward, plain: rows by the definition, ROWS of them a warp. Takes every type, head dim, stride and option.
#include "device/gpu.h"
#include "blocksparse_attention/block_rows.h"
$if packed
#include "blocksparse_attention/packed_blocks.h"
$end

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROWS = 4, FEATURES = 16;  // query rows a warp, features of each a lane
constexpr int BLOCK_M = WARPS * ROWS;   // query rows a block: they are of one block of queries

$require block_m == warps * 4
// Block (x, y, z): the x-th BLOCK_M rows, `parts` a block of queries, of row z of the batch (packed: of all sequences), the last rows first. A row is a query token of
// one of `together` heads that follow one another and share the mask: those of the y-th such group.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
$if packed
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  Sequence sequence;
  int64_t block = block_x() / parts, blocks_of_sequence;
  if (!find_sequence(sequences, block, block_q, 1, sequence, blocks_of_sequence)) return;
  sequence = within_mask(sequence, block_mask_view, block_q, block_k);
  const int64_t query_block = blocks_of_sequence - 1 - block, first_row = (query_block * parts + block_x() % parts) * BLOCK_M;
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths,
                            key_value_seq_lengths};
  const Sequence sequence = sequences[block_z()];
  const int64_t item = grid_x() - 1 - block_x(), query_block = item / parts, first_row = item * BLOCK_M;
$end
  const int64_t left = sequence.queries * together - first_row;
  if (left <= 0) return;
  const int first_head = block_y() * static_cast<int>(together), kv_head = first_head / static_cast<int>(q.heads / k.heads);
  __shared__ RowRange ranges[BLOCK_M];
  const Rows rows{ranges, static_cast<int>(first_row), static_cast<int>(left < BLOCK_M ? left : BLOCK_M), first_head,
                  static_cast<int>(together)};
  find_ranges_in_chunks<THREADS, BLOCK_M>(rows, Visibility{causal, window_left, window_right}, sequence, chunk_size);
  const KeyBlocks blocks(block_mask_view, sequence.batch, first_head, ${packed ? 'row_of_mask(block_mask_view, query_block)' : 'query_block'}, block_k);
  attend_blocks_plainly<THREADS, true, true, true, ROWS, FEATURES>(q, k, v, out, rules, sequence, softmax_aux_view, sinks_type, lse_view, rows,
                                                                  blocks, kv_head, q_view.shape[${packed ? 2 : 3}], v_view.shape[${packed ? 2 : 3}],
                                                                  reinterpret_cast<float*>(dynamic_shared()));
}
