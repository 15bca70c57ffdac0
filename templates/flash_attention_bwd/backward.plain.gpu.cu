// flash_attention_bwd, plain: gradients by the definition, a warp a query row, or a key. Takes every type, head dim, stride and option, and
// gives the same bits each time.
#include "device/gpu.h"
#include "flash_attention_bwd/attention_backward_plain.h"
$if by_blocks  // blocksparse_attention_bwd
$if packed
#include "blocksparse_attention/packed_blocks.h"
$else
#include "blocksparse_attention/batched.h"
$end
$end

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int BLOCK = ${block};  // rows, or keys, a block
using Gradients = PlainGradients<Element, true, true, true>;

// A weight's own gradient joins the delta of its row: rows [first, first + BLOCK) of a head.
static inline void add_weight_terms(const View& weights, const View& dweights, const Sequence& sequence, int head, int64_t first,
                                    float* row_delta) {
#pragma unroll 1
  for (int64_t local = warp(); local < BLOCK && first + local < sequence.queries; local += WARPS) {
    const Element* a = static_cast<const Element*>(weights.data) + row_offset(weights, sequence.batch, head, first + local);
    const Element* b = static_cast<const Element*>(dweights.data) + row_offset(dweights, sequence.batch, head, first + local);
    float sum = 0;
#pragma unroll 1
    for (int64_t key = lane(); key < weights.shape[3]; key += WARP) sum += to_float(a[key]) == 0 ? 0 : to_float(a[key]) * to_float(b[key]);
    for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (lane() == 0) row_delta[local] += sum;  // written by this lane in prepare_rows()
  }
}

KERNEL(THREADS, 1) prepare(${parameters('prepare')}) {
  const Heads<const Element> out(out_view), dout(dout_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, out.tokens, 0, true, 0};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK, 1, sequence, items)) return;
  const int64_t at = RowSpace{out.heads, space_rows, BLOCK, cum_seqlens_q != nullptr}.first(sequence, block_y()) + item * BLOCK;
  prepare_rows<THREADS, WARP, 1>(out, dout, lse_view, sequence, block_y(), item * BLOCK, BLOCK, out_view.shape[out_view.rank - 1],
                                 row_lse + at, row_delta + at);
$if not by_blocks
  if (is_given(dweights_view)) add_weight_terms(weights_view, dweights_view, sequence, block_y(), item * BLOCK, row_delta + at);
$end
}

// With a bias: faint rows, after the log-sum-exps. Block (x, y, z): BLOCK rows x of head y of row z of the batch.
KERNEL(THREADS, 1) mark_faint(${parameters('mark_faint')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const Sequence sequence = Sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths, key_value_seq_lengths}[block_z()];
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, 0, 0, 0, 0, q.heads};
  const int64_t first = block_x() * int64_t{BLOCK}, at = RowSpace{q.heads, space_rows, BLOCK, false}.first(sequence, block_y()) + first;
  mark_faint_rows<THREADS / WARP>(rules, {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, sequence, lse_view, block_y(), first, BLOCK, 0, row_lse + at);
}

KERNEL(THREADS, 1) differentiate_queries(${parameters('differentiate_queries')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK, 1, sequence, items)) return;
$if by_blocks and packed
  sequence = cut_to_mask(sequence, block_mask_view, block_q, block_k);
$end
  const int64_t head_dim = q_view.shape[q_view.rank - 1], value_dim = v_view.shape[v_view.rank - 1];
  const Gradients gradients{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), rules, {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}},
                            sequence, row_lse, row_delta, {q.heads, space_rows, BLOCK, cum_seqlens_q != nullptr}, head_dim, value_dim,
                            reinterpret_cast<float*>(dynamic_shared()) + warp() * 2 * (head_dim + value_dim), ${by_blocks ? 'nullptr' : '&dweights_view'}};
#pragma unroll 1
  for (int64_t token = item * BLOCK + warp(); token < (item + 1) * BLOCK && token < sequence.queries; token += WARPS)
    gradients.differentiate_query(static_cast<int>(token), block_y(), Heads<Element>(dq_view));
}

KERNEL(THREADS, 1) differentiate_keys(${parameters('differentiate_keys')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), keys = k.tokens;
  if (cum_seqlens_q && !find_keys(sequences, item, BLOCK, sequence, keys)) return;
$if by_blocks and packed
  sequence = cut_to_mask(sequence, block_mask_view, block_q, block_k);
$end
  const int64_t head_dim = q_view.shape[q_view.rank - 1], value_dim = v_view.shape[v_view.rank - 1];
  const Gradients gradients{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), rules, {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}},
                            sequence, row_lse, row_delta, {q.heads, space_rows, BLOCK, cum_seqlens_q != nullptr}, head_dim, value_dim,
                            reinterpret_cast<float*>(dynamic_shared()) + warp() * 2 * (head_dim + value_dim), ${by_blocks ? 'nullptr' : '&dweights_view'}};
#pragma unroll 1
  for (int64_t key = item * BLOCK + warp(); key < (item + 1) * BLOCK && key < keys; key += WARPS)
    gradients.differentiate_key(static_cast<int>(key), block_y(), Heads<Element>(dk_view), Heads<Element>(dv_view));
}

// Block (x, y, z): elements [dbias head y, dbias batch z] in turn, a thread each.
KERNEL(THREADS, 1) differentiate_bias(${parameters('differentiate_bias')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const int64_t head_dim = q_view.shape[q_view.rank - 1], value_dim = v_view.shape[v_view.rank - 1];
  const int64_t heads_a_kv_head = q.heads / k.heads, elements = q.tokens * k.tokens;
  const int64_t first_head = block_y(), end_head = dbias_view.shape[1] == 1 ? q.heads : first_head + 1;
  const int64_t first_batch = block_z(), end_batch = dbias_view.shape[0] == 1 ? sequence_count : first_batch + 1;
#pragma unroll 1
  for (int64_t at = block_x() * int64_t{THREADS} + thread_x(); at < elements; at += grid_x() * int64_t{THREADS}) {
    const int token = static_cast<int>(at / k.tokens), key = static_cast<int>(at % k.tokens);
    float sum = 0;
#pragma unroll 1
    for (int64_t batch = first_batch; batch < end_batch; ++batch) {
      const Sequence sequence = sequences[batch];
      const Gradients gradients{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), rules,
                                {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, sequence, row_lse, row_delta,
                                {q.heads, space_rows, BLOCK, false}, head_dim, value_dim, nullptr, ${by_blocks ? 'nullptr' : '&dweights_view'}};
#pragma unroll 1
      for (int64_t head = first_head; head < end_head; ++head) {
        const Element *query = gradients.q_row(token, head), *dout_row = gradients.dout_row(token, head);
        const Element *key_row = gradients.k_row(key, head / heads_a_kv_head), *value = gradients.v_row(key, head / heads_a_kv_head);
        float dot = 0, dout_dot = 0;
#pragma unroll 1
        for (int64_t d = 0; d < head_dim; ++d) dot += to_float(query[d]) * to_float(key_row[d]);
#pragma unroll 1
        for (int64_t d = 0; d < value_dim; ++d) dout_dot += to_float(dout_row[d]) * to_float(value[d]);
        sum += gradients.differentiate(token, static_cast<int>(head), key, dot, dout_dot).score;
      }
    }
    store_element(dbias_view.data, bias_type,
                  first_batch * dbias_view.strides[0] + first_head * dbias_view.strides[1] + token * dbias_view.strides[2] + key, sum);
  }
}

KERNEL(THREADS, 1) differentiate_sinks(${parameters('differentiate_sinks')}) {
  const Heads<const Element> q(q_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, 0, true, 0};
  differentiate_sink<THREADS>(softmax_aux_view, dsoftmax_aux_view, sinks_type, block_x(), sequences,
                              {q.heads, space_rows, BLOCK, cum_seqlens_q != nullptr}, row_lse, row_delta);
}
