// ragged_page_attention, plain: one query row at a time, one key at a time, by the definition. Takes every legal call.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "device/number/quantise.h"
#include "ragged_page_attention/ragged_batch.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "ragged_page_attention/pages_cpu.h"

// The running softmax: `maximum` is the largest score so far, `sum` the denominator and `values` the weighted values, both relative to it.
// Scores are in units of log 2.
struct RaggedRow {
  float maximum;
  double sum;
  float* values;

  void start(const Sinks& sinks, int64_t features) {
    maximum = -INFINITE, sum = 0;
    for (int64_t i = 0; i < sinks.count; ++i) maximum = sinks[i] * LOG2_E > maximum ? sinks[i] * LOG2_E : maximum;
    const float base = maximum == -INFINITE ? 0 : maximum;
    for (int64_t i = 0; i < sinks.count; ++i) sum += exp2_of(splat(sinks[i] * LOG2_E - base))[0];
    __builtin_memset(values, 0, features * sizeof(float));
  }
  // Adds a key of this score and its value.
  void add(float score, const Cached* value, int64_t features) {
    if (score > maximum) {
      const float factor = exp2_of(splat(maximum - score))[0];
      sum *= factor;
      for (int64_t d = 0; d < features; ++d) values[d] *= factor;
      maximum = score;
    }
    const float weight = exp2_of(splat(score - (maximum == -INFINITE ? 0 : maximum)))[0];
    sum += weight;
    if (weight == 0) return;  // a value behind a weight of 0 may be NaN
    for (int64_t d = 0; d < features; ++d) values[d] += to_float(value[d]) * weight;
  }
};

$if v3
#include "ragged_page_attention/write.cpu.h"
$end

// Item (x, y): query head x of token y.
static void attend(${parameters('attend')}, const Group& group) {
  const int64_t head = group.x, token = group.y, heads = queries_view.shape[1], dim = queries_view.shape[2], kv_head = head / rows_a_head;
  const RaggedBatch batch{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, group.grid_y};
  const RaggedSequence sequence = batch[batch.sequence_of(token)];
  const bool exists = sequence.number < batch.count && token >= sequence.first;
  const int64_t query = token - sequence.first;
  const KeyRange range = visible_keys({!is_given(tree_mask_view), window_left, -1}, query, sequence.old_keys(), exists ? sequence.keys : 0);
  const TreeRow tree(tree_mask_view, sequence, query);
  const int64_t at = 2 * kv_head * head_stride;
  const RaggedPages pages{kv_pages + at, kv_pages + at + head_stride, block_tables + sequence.number * table_row, page_stride, slot_stride, ps};
  const Scales key_scales{k_scale, k_scales}, value_scales{v_scale, v_scales};

  const Element* row = static_cast<const Element*>(queries_view.data) + token * queries_view.strides[0] + head * queries_view.strides[1];
  float* q = static_cast<float*>(group.shared) + dim;
  for (int64_t d = 0; d < dim; ++d) q[d] = to_float(row[d]);
$if v3
  if (q_scale)
    for (int64_t d = 0; d < dim; ++d) q[d] = as_cached<Cached>(q[d], q_scale[kv_head * q_scales]);
$end
  Sinks sinks(softmax_aux_view, sinks_type, head, heads);
  if (!exists) sinks.count = 0;
  RaggedRow softmax{0, 0, static_cast<float*>(group.shared)};
  softmax.start(sinks, dim);
  const float scale = softmax_scale * key_scales[kv_head];
  for (int64_t key = range.first; key < range.end; ++key) {
    if (tree.hides(key)) continue;
    const Cached* k = pages.keys + pages.place(key);
    float score = 0;
    for (int64_t d = 0; d < dim; ++d) score += q[d] * to_float(k[d]);
    score *= scale;
    if (logits_soft_cap > 0) score = logits_soft_cap * tanh_of(splat(score / logits_soft_cap))[0];
    softmax.add(score * LOG2_E, pages.values + pages.place(key), dim);
  }

  const float factor = softmax.sum == 0 ? 0 : static_cast<float>(value_scales[kv_head] / softmax.sum);
  Element* out = static_cast<Element*>(out_view.data) + token * out_view.strides[0] + head * out_view.strides[1];
  for (int64_t d = 0; d < dim; ++d) out[d] = from_float<Element>(softmax.values[d] * factor);
$if not v3
  if (!is_given(lse_view)) return;
  const float maximum = softmax.maximum == -INFINITE ? 0 : softmax.maximum * LN_2;
  static_cast<float*>(lse_view.data)[token * lse_view.strides[0] + head * lse_view.strides[1]] =
      maximum + log_of(splat(static_cast<float>(softmax.sum)))[0];
$end
}
