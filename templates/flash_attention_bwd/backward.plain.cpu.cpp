// flash_attention, backward, plain: one query and one key at a time, by the definition. Takes every legal call.
//
// For a query i and a key j that it sees, with weight p = exp(s - lse):
//   dv_j += p kept dout_i,  ds = p (kept dout_i . v_j - delta_i),  dx = ds * slope of the soft cap,  dq_i += dx scale k_j,  dk_j += dx scale q_i
// where kept is 1 / (1 - dropout) or 0, and delta_i = out_i . dout_i. A weight of 0 brings nothing, whatever lies behind it.
#include "device/cpu.h"
#include "device/number/vector.h"
#include "flash_attention_bwd/attention_gradient.h"
#include "device/attention/limited_bias.h"
#include "flash_attention_bwd/faint_rows.h"
#include "device/number/narrow.h"
$if by_blocks  // blocksparse_attention_bwd
#include "blocksparse_attention/key_blocks.h"
$if packed
#include "blocksparse_attention/packed_blocks.h"
$else
#include "blocksparse_attention/batched.h"
$end
$end
$if by_blocks
static const View weights_view{nullptr, -1, {}, {}}, dweights_view{nullptr, -1, {}, {}};  // there are none
$end

using Element = ${ctype(E)};
constexpr int64_t BLOCK = ${block};  // queries, or keys, a work item

// What a call asks for, the same for every row.
struct Call {
  Heads<const Element> q, k, v, dout;
  RowTable rows;
  const View &bias, &mask, &q_segments, &kv_segments, &dweights;
  ${by_blocks ? 'BlockVisibility' : 'Visibility'} visibility;
  int64_t bias_type, head_dim, value_dim;
  float scale, soft_cap, drop_threshold;
  uint64_t seed;
};

// What one query and one key bring.
struct Pair {
  float weight;      // 0: nothing
  float kept;        // factor of dropout
  float by_score;    // gradient of the score after cap and bias
  float by_product;  // gradient of q . k
};

static float dot(const Element* a, const Element* b, int64_t count) {
  Floats sums = {};
  for (int64_t d = 0; d < count; d += LANES) sums += load_some(a + d, count - d) * load_some(b + d, count - d);
  float sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
  return sum;
}

static void add_scaled(float* to, const Element* from, float factor, int64_t count) {
  for (int64_t d = 0; d < count; ++d) to[d] += factor * to_float(from[d]);
}

// Whether mask and segments let the query see the key; causality, window and lengths are in its key range already.
static bool sees(const Call& call, const Sequence& s, int64_t head, int64_t token, int64_t key) {
  if (is_given(call.mask) && !static_cast<const bool*>(call.mask.data)[row_offset(call.mask, s.batch, head, token) + key]) return false;
$if by_blocks
  if (!call.visibility.has_block(s.${packed ? 'index' : 'batch'}, head, token, key)) return false;
$end
  if (!is_given(call.q_segments)) return true;
  const int32_t* of_queries = static_cast<const int32_t*>(call.q_segments.data) + s.batch * call.q_segments.strides[0];
  const int32_t* of_keys = static_cast<const int32_t*>(call.kv_segments.data) + s.batch * call.kv_segments.strides[0];
  return of_keys[key] >= 0 && of_keys[key] == of_queries[token];
}

static float kept_factor(const Call& call, const Sequence& s, int64_t head, int64_t token, int64_t key) {
  if (call.drop_threshold <= 0) return 1;
  if (call.drop_threshold >= 65536) return 0;
  uint32_t words[4] = {static_cast<uint32_t>(key >> 3), static_cast<uint32_t>(token), static_cast<uint32_t>(s.index * call.q.heads + head), 0};
  philox(words, call.seed);
  return static_cast<float>(dropout_lane(words, key)) < call.drop_threshold ? 0 : 65536 / (65536 - call.drop_threshold);
}

// A faint row's -log 2 of each key's weight: all keys that it sees share it. Of another row, or one whose keys have several biases, -1.
static float faint_share(const Call& call, const Sequence& s, int64_t head, int64_t token, float lse) {
  if (!is_given(call.bias) || !(lse < FAINT) || lse == -INFINITE) return -1;
  const KeyRange keys = visible_keys(call.visibility, s, token);
  const int64_t row = row_offset(call.bias, s.batch, head, token);
  int64_t count = 0;
  for (int64_t key = keys.first; key < keys.end; ++key) {
    const float bias = limited_bias(element_of(call.bias.data, call.bias_type, row + key));
    if (bias == -INFINITE || !sees(call, s, head, token, key)) continue;
    if (!(bias >= lse * (1 + FAINT_LEEWAY))) return -1;
    ++count;
  }
  return count == 0 ? -1 : log_of(splat(static_cast<float>(count)))[0] * LOG2_E;
}

static Pair pair_of(const Call& call, const Sequence& s, int64_t head, int64_t token, int64_t key) {
  const int64_t kv_head = head * call.k.heads / call.q.heads, row = (call.rows.lse.rank == 2 ? s.first_query : 0) + token;
  const float lse = call.rows.lse_of(s.batch, head)[row];
  if (lse == -INFINITE || !sees(call, s, head, token, key)) return {};
  const Element *q = call.q.row(s.batch, s.first_query + token, head), *k = call.k.row(s.batch, s.first_key + key, kv_head);
  float score = call.scale * dot(q, k, call.head_dim), slope = 1;
  if (call.soft_cap > 0) {
    const float bent = tanh_of(splat(score / call.soft_cap))[0];
    score = call.soft_cap * bent;
    slope = 1 - bent * bent;
  }
  if (is_given(call.bias)) score += limited_bias(element_of(call.bias.data, call.bias_type, row_offset(call.bias, s.batch, head, token) + key));
$if by_blocks  // a key behind a bias of minus infinity is seen: its weight is NaN where the row's log-sum-exp is
  if (score == -INFINITE && lse == lse) return {};
$else
  if (score == -INFINITE) return {};
$end
  const float share = faint_share(call, s, head, token, lse);
  const float weight = exp2_of(splat(share >= 0 ? -share : (score - lse) * LOG2_E))[0];
  if (weight == 0) return {};
  const float kept = kept_factor(call, s, head, token, key);
  const Element *dout = call.dout.row(s.batch, s.first_query + token, head), *v = call.v.row(s.batch, s.first_key + key, kv_head);
  float of_weight = kept == 0 ? 0 : dot(dout, v, call.value_dim);
  if (kept != 0 && is_given(call.dweights))
    of_weight += to_float(static_cast<const Element*>(call.dweights.data)[row_offset(call.dweights, s.batch, head, token) + key]);
  const float by_weight = kept == 0 ? 0 : kept * of_weight;
  const float by_score = weight * (by_weight - call.rows.delta_of(s.batch, head)[row]);
  return {weight, kept, by_score, by_score * slope};
}

// A weight's own gradient joins the delta of its row.
static float weight_terms(const View& weights, const View& dweights, int64_t batch, int64_t head, int64_t token) {
  const Element* a = static_cast<const Element*>(weights.data) + row_offset(weights, batch, head, token);
  const Element* b = static_cast<const Element*>(dweights.data) + row_offset(dweights, batch, head, token);
  double sum = 0;
  for (int64_t key = 0; key < weights.shape[3]; ++key) sum += to_float(a[key]) == 0 ? 0 : to_float(a[key]) * to_float(b[key]);
  return static_cast<float>(sum);
}

// Item (x, y, z): block x of query tokens of row z of the batch (packed: of all), query head y.
static void sum_rows(${parameters('sum_rows')}, const Group& group) {
  const RowTable rows{lse_view, delta, Hq, query_tokens};
  const int64_t begin = group.x * BLOCK, end = begin + BLOCK < query_tokens ? begin + BLOCK : query_tokens;
  fill_delta(rows, Heads<const Element>(out_view), Heads<const Element>(dout_view), group.z, group.y, begin, end,
             dout_view.shape[dout_view.rank - 1]);
  for (int64_t token = begin; is_given(dweights_view) && token < end; ++token)
    rows.delta_of(group.z, group.y)[token] += weight_terms(weights_view, dweights_view, group.z, group.y, token);
}

// Item x: element x of dsoftmax_aux.
static void differentiate_sinks(${parameters('differentiate_sinks')}, const Group& group) {
  const RowTable rows{lse_view, delta, Hq, query_tokens};
  store_sink_gradient(rows, softmax_aux_view, dsoftmax_aux_view, sinks_type, group.x, batches, query_tokens);
}

// dq of the queries of one item, `sum` [head_dim] the worker's scratch.
static void differentiate_query(const Call& call, const Sequence& s, int64_t head, int64_t token, const Heads<Element>& dq, float* sum) {
  __builtin_memset(sum, 0, call.head_dim * sizeof(float));
  const KeyRange keys = visible_keys(call.visibility, s, token);
  for (int64_t key = keys.first; key < keys.end; ++key) {
    const Pair pair = pair_of(call, s, head, token, key);
    if (pair.weight == 0) continue;
    add_scaled(sum, call.k.row(s.batch, s.first_key + key, head * call.k.heads / call.q.heads), pair.by_product, call.head_dim);
  }
  Element* to = dq.row(s.batch, s.first_query + token, head);
  for (int64_t d = 0; d < call.head_dim; ++d) to[d] = from_float<Element>(sum[d] * call.scale);
}

// dk and dv of one key, over all queries of the heads that share it; `sum` [head_dim + value_dim].
static void differentiate_key(const Call& call, const Sequence& s, int64_t kv_head, int64_t key, const Heads<Element>& dk,
                              const Heads<Element>& dv, float* sum) {
  __builtin_memset(sum, 0, (call.head_dim + call.value_dim) * sizeof(float));
  const int64_t group = call.q.heads / call.k.heads;
  for (int64_t token = 0; token < s.queries && key < s.keys; ++token) {
    const KeyRange keys = visible_keys(call.visibility, s, token);
    if (key < keys.first || key >= keys.end) continue;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const Pair pair = pair_of(call, s, head, token, key);
      if (pair.weight == 0) continue;
      add_scaled(sum, call.q.row(s.batch, s.first_query + token, head), pair.by_product, call.head_dim);
      if (pair.kept == 0) continue;
      add_scaled(sum + call.head_dim, call.dout.row(s.batch, s.first_query + token, head), pair.weight * pair.kept, call.value_dim);
    }
  }
  Element *to_k = dk.row(s.batch, s.first_key + key, kv_head), *to_v = dv.row(s.batch, s.first_key + key, kv_head);
  for (int64_t d = 0; d < call.head_dim; ++d) to_k[d] = from_float<Element>(sum[d] * call.scale);
  for (int64_t d = 0; d < call.value_dim; ++d) to_v[d] = from_float<Element>(sum[call.head_dim + d]);
}

// One row of dbias, summed over the rows of the batch and the heads that share it.
static void differentiate_bias(const Call& call, const Sequences& sequences, const View& dbias, int64_t batch, int64_t head, int64_t token) {
  const int64_t first_batch = dbias.shape[0] == 1 ? 0 : batch, end_batch = dbias.shape[0] == 1 ? sequences.count : batch + 1;
  const int64_t first_head = dbias.shape[1] == 1 ? 0 : head, end_head = dbias.shape[1] == 1 ? call.q.heads : head + 1;
  for (int64_t key = 0; key < sequences.keys; ++key) {
    double sum = 0;
    for (int64_t b = first_batch; b < end_batch; ++b) {
      const Sequence s = sequences[b];
      const KeyRange keys = visible_keys(call.visibility, s, token);
      if (key < keys.first || key >= keys.end) continue;
      for (int64_t h = first_head; h < end_head; ++h) sum += pair_of(call, s, h, token, key).by_score;
    }
    store_element(dbias.data, call.bias_type, row_offset(dbias, batch, head, token) + key, static_cast<float>(sum));
  }
}

// Item (x, y, z), by `part`:
//   0  block x of query tokens (packed: of all sequences; batched: of row z of the batch), query head y: dq
//   1  block x of key tokens likewise, kv head y: dk and dv
//   2  block x of query tokens, head y and row z of dbias
static void differentiate(${parameters('differentiate')}, const Group& group) {
  const int64_t part = a0;
  const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
  const Call call{q, k, v, dout, RowTable{lse_view, delta, q.heads, q.tokens}, bias_view, attention_mask_view, q_segment_ids_view,
                  kv_segment_ids_view, dweights_view, ${by_blocks ? 'BlockVisibility' : 'Visibility'}{causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, bias_type, q_view.shape[q_view.rank - 1],
                  v_view.shape[v_view.rank - 1], softmax_scale, logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  Sequence s = sequences[cum_seqlens_q ? 0 : group.z];
  int64_t item = group.x, tokens = part == 1 ? k.tokens : q.tokens, items;
  if (cum_seqlens_q && part == 0 && !sequences.find(item, BLOCK, 1, s, items)) return;
  if (cum_seqlens_q && part == 1 && !find_keys(sequences, item, BLOCK, s, tokens)) return;
  if (cum_seqlens_q && part == 0) tokens = s.queries;
$if by_blocks and packed
  s = cut_to_mask(s, block_mask_view, block_q, block_k);
$end
  float* sum = static_cast<float*>(group.shared);
  for (int64_t token = item * BLOCK; token < tokens && token < (item + 1) * BLOCK; ++token) {
    if (part == 0) differentiate_query(call, s, group.y, token, Heads<Element>(dq_view), sum);
    if (part == 1) differentiate_key(call, s, group.y, token, Heads<Element>(dk_view), Heads<Element>(dv_view), sum);
    if (part == 2) differentiate_bias(call, sequences, dbias_view, group.z, group.y, token);
  }
}
