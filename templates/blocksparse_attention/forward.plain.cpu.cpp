// blocksparse_attention, forward, plain: one query row at a time, LANES keys at a time, by the definition. Takes every legal call.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "device/attention/limited_bias.h"
#include "device/number/narrow.h"

using Element = ${ctype(E)};
constexpr int64_t BLOCK_M = ${block_m};  // query tokens a work item

#include "device/attention/attention_plain_cpu.h"
#include "blocksparse_attention/key_blocks.h"
$if packed
#include "blocksparse_attention/packed_blocks.h"
$end

$if packed
// Item (x, y): block x of query tokens of all sequences, query head y.
$else
// Item (x, y, z): block x of query tokens of row z of the batch, query head y.
$end
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const View no_weights{nullptr, -1, {}, {}};
  const Call call{q, k, v, Heads<Element>(out_view), bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view,
                  softmax_aux_view, lse_view, no_weights, Visibility{causal, window_left, window_right}, bias_type, sinks_type,
                  q_view.shape[${packed ? 2 : 3}], v_view.shape[${packed ? 2 : 3}], softmax_scale, logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)};
$if packed
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  Sequence sequence;
  int64_t item = group.x, items;
  if (!sequences.find(item, BLOCK_M, 1, sequence, items)) return;
  sequence = within_mask(sequence, block_mask_view, block_q, block_k);
  const int64_t end = (item + 1) * BLOCK_M < sequence.queries ? (item + 1) * BLOCK_M : sequence.queries;
  for (int64_t token = item * BLOCK_M; token < end; ++token) {
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths,
                            key_value_seq_lengths};
  const Sequence sequence = sequences[group.z];
  const int64_t end = (group.x + 1) * BLOCK_M < sequence.queries ? (group.x + 1) * BLOCK_M : sequence.queries;
  for (int64_t token = group.x * BLOCK_M; token < end; ++token) {
$end
    Query query{call, sequence, token, group.y, group.y * k.heads / q.heads, 0, 0, static_cast<float*>(group.shared)};
    start(query);
    const KeyRange keys = within_chunk(visible_keys(call.visibility, sequence, token), sequence, token, chunk_size);
    const KeyBlocks blocks(block_mask_view, sequence.batch, group.y, ${packed ? 'row_of_mask(block_mask_view, token / block_q)' : 'token / block_q'}, block_k);
    for (KeyRange run = blocks.next(keys.first, keys.end); run.first < run.end; run = blocks.next(run.end, keys.end))
      for (int64_t key = run.first; key < run.end; key += LANES) add_keys(query, key, run.end - key < LANES ? run.end - key : LANES);
    store(query);
  }
}
