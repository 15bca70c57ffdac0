// flash_attention, forward, plain: one query row at a time, LANES keys at a time, by the definition. Takes every legal call.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "device/attention/limited_bias.h"
#include "device/number/narrow.h"

using Element = ${ctype(E)};
constexpr int64_t BLOCK_M = ${block_m};  // query tokens a work item

#include "device/attention/attention_plain_cpu.h"

// Item (x, y, z): block x of query tokens (packed: of all sequences; batched: of row z of the batch), query head y.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Call call{q, k, v, Heads<Element>(out_view), bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view,
                  softmax_aux_view, lse_view, weights_view, Visibility{causal, window_left, window_right}, bias_type, sinks_type,
                  q_view.shape[q_view.rank - 1], v_view.shape[v_view.rank - 1], softmax_scale, logits_soft_cap, drop_threshold,
                  static_cast<uint64_t>(dropout_seed)};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : group.z];
  int64_t item = group.x, items = group.grid_x;
  if (cum_seqlens_q && !sequences.find(item, BLOCK_M, 1, sequence, items)) return;
  const int64_t end = (item + 1) * BLOCK_M < sequence.queries ? (item + 1) * BLOCK_M : sequence.queries;
  for (int64_t token = item * BLOCK_M; token < end; ++token) {
    Query query{call, sequence, token, group.y, group.y * k.heads / q.heads, 0, 0, static_cast<float*>(group.shared)};
    start(query);
    const KeyRange keys = visible_keys(call.visibility, sequence, token);
    for (int64_t key = keys.first; key < keys.end; key += LANES) add_keys(query, key, keys.end - key < LANES ? keys.end - key : LANES);
    store(query);
    if (is_given(weights_view)) store_weights(query, keys);
  }
}
