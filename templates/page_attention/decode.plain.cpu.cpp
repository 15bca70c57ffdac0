// page_attention, plain: one query row at a time, one key at a time, by the definition. Takes every legal call.
//
// The running softmax: `maximum` is the largest score so far, `sum` the denominator and `values` the weighted values, both relative to it.
// Scores are in units of log 2. Only keys that the row sees are read, and only table entries of their pages.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/float8.h"
#include "device/number/math.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};

// log2 of a row's softmax denominator so far, as a pair: sum * 2^maximum.
struct Row {
  float maximum;
  double sum;
};

static Row start_row(const Sinks& sinks) {
  Row row{-INFINITE, 0};
  for (int64_t i = 0; i < sinks.count; ++i) row.maximum = sinks[i] * LOG2_E > row.maximum ? sinks[i] * LOG2_E : row.maximum;
  const float base = row.maximum == -INFINITE ? 0 : row.maximum;
  for (int64_t i = 0; i < sinks.count; ++i) row.sum += exp2_of(splat(sinks[i] * LOG2_E - base))[0];
  return row;
}

static float dot(const Element* a, const Cached* b, int64_t count) {
  float sum = 0;
  for (int64_t d = 0; d < count; ++d) sum += to_float(a[d]) * to_float(b[d]);
  return sum;
}

// Adds a key of this score; its weight, relative to the row's maximum.
static float weigh(Row& row, float score, float* values, int64_t count) {
  if (score > row.maximum) {
    const float factor = exp2_of(splat(row.maximum - score))[0];
    row.sum *= factor;
    for (int64_t d = 0; d < count; ++d) values[d] *= factor;
    row.maximum = score;
  }
  const float weight = exp2_of(splat(score - (row.maximum == -INFINITE ? 0 : row.maximum)))[0];
  row.sum += weight;
  return weight;
}

// Item (x, y): query head x of sequence y.
static void decode(${parameters('decode')}, const Group& group) {
  const int64_t head = group.x, sequence = group.y, kv_head = head / rows_a_head, dim = query_view.shape[2];
  const Element* q = static_cast<const Element*>(query_view.data) + sequence * query_view.strides[0] + head * query_view.strides[1];
  const float scale = softmax_scale * (k_scale ? k_scale[kv_head * k_scales] : 1);
  float* values = static_cast<float*>(group.shared);
  __builtin_memset(values, 0, dim * sizeof(float));
  Row row = start_row(Sinks(softmax_aux_view, sinks_type, head, query_view.shape[1]));

  const int64_t length = context_lens[sequence];
  const int64_t first = window_left >= 0 && window_left < length ? length - 1 - window_left : 0;
  for (int64_t key = first; key < length; ++key) {
    const int64_t page = block_tables[sequence * table_row + key / ps], slot = key % ps;
    float score = scale * dot(q, key_cache + page * key_page + kv_head * key_head + slot * key_token, dim);
    if (logits_soft_cap > 0) score = logits_soft_cap * tanh_of(splat(score / logits_soft_cap))[0];
    const float weight = weigh(row, score * LOG2_E, values, dim);
    if (weight == 0) continue;  // a value behind a weight of 0 may be NaN
    const Cached* v = value_cache + page * value_page + kv_head * value_head + slot * value_token;
    for (int64_t d = 0; d < dim; ++d) values[d] += to_float(v[d]) * weight;
  }

  const float factor = row.sum == 0 ? 0 : static_cast<float>((v_scale ? v_scale[kv_head * v_scales] : 1) / row.sum);
  Element* out = static_cast<Element*>(out_view.data) + sequence * out_view.strides[0] + head * out_view.strides[1];
  for (int64_t d = 0; d < dim; ++d) out[d] = from_float<Element>(values[d] * factor);
  if (!is_given(lse_view)) return;
  const float maximum = row.maximum == -INFINITE ? 0 : row.maximum * LN_2;
  static_cast<float*>(lse_view.data)[sequence * lse_view.strides[0] + head] = maximum + log_of(splat(static_cast<float>(row.sum)))[0];
}
