// GPU vocabulary of the attention kernels: from a dot product to a score in units of log 2, in the order of docs/semantics.md, "Scores": scale, cap, bias, masks.
#pragma once
#include "device/attention/attention_rows.h"
#include "device/attention/exact_tanh.h"
$if takes_bias
#include "device/attention/limited_bias.h"
$end

// What a call does to scores.
struct ScoreRules {
  const View &bias, &mask, &q_segments, &kv_segments;
  int64_t bias_type;
  float scale, soft_cap, drop_threshold;
  uint64_t seed;
  int64_t heads;  // query heads
};

// The same for one query row.
struct RowRules {
  RowRange range;
  int64_t bias_at;          // elements before its bias
  const bool* mask;         // its row, or null
  const int32_t* segments;  // of the keys, or null
  int32_t segment;          // its own
};

// ADJUSTED: any of bias, mask and segments may be given.
template <bool ADJUSTED>
static inline RowRules rules_of(const ScoreRules& rules, const Sequence& sequence, const RowRange& range, const RowPlace& place) {
  RowRules row{range, 0, nullptr, nullptr, 0};
  if (!ADJUSTED) return row;
  if (is_given(rules.bias)) row.bias_at = row_offset(rules.bias, sequence.batch, place.head, place.token);
  if (is_given(rules.mask))
    row.mask = static_cast<const bool*>(rules.mask.data) + row_offset(rules.mask, sequence.batch, place.head, place.token);
  if (is_given(rules.kv_segments)) {
    row.segments = static_cast<const int32_t*>(rules.kv_segments.data) + sequence.batch * rules.kv_segments.strides[0];
    row.segment = static_cast<const int32_t*>(rules.q_segments.data)[sequence.batch * rules.q_segments.strides[0] + place.token];
  }
  return row;
}

// Neither ADJUSTED nor CAPPED: the score is left in its own units, for the softmax to scale. -inf: the row does not see the key. EXACT: good
// enough for f32 under any cap.
template <bool ADJUSTED, bool CAPPED, bool EXACT = false>
static inline float score_of(float score, const ScoreRules& rules, const RowRules& row, int key) {
  bool visible = key >= row.range.first && key < row.range.end;
  if (CAPPED && rules.soft_cap > 0) {
    const float x = score * (rules.scale / rules.soft_cap);
    score = rules.soft_cap * (EXACT ? exact_tanh_of(x) : far_tanh_of(x)) * LOG2_E;
  } else if (ADJUSTED || CAPPED)
    score *= rules.scale * LOG2_E;
  if (ADJUSTED) {
    if (visible && row.mask) visible = row.mask[key];
    if (visible && row.segments) visible = row.segments[key] >= 0 && row.segments[key] == row.segment;
$if takes_bias
    if (visible && is_given(rules.bias)) score += limited_bias(element_of(rules.bias.data, rules.bias_type, row.bias_at + key)) * LOG2_E;
$else
    if (visible && is_given(rules.bias)) score += element_of(rules.bias.data, rules.bias_type, row.bias_at + key) * LOG2_E;
$end
  }
  return visible ? score : -INFINITE;
}
