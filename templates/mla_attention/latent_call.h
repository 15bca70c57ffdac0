// Vocabulary of every backend: a call of mla_attention in either form: its rows, and which keys each query sees. Part of a template, which has defined
// before: Element, and Cached, which is the same.
#pragma once
#include "device/attention/attention.h"
#include "mla_decode/latent_keys.h"

// The keys of one query: [first, end) but for those of other segments.
struct SeenKeys {
  int64_t first, end;
  const int32_t* segments;  // of the sequence's keys; null: all are seen
  int32_t segment;          // the query's

  bool sees(int64_t key) const { return !segments || segments[key] == segment; }
};

// What tells which keys a query sees.
struct LatentCall {
  const View &q_segments, &kv_segments;
  const int32_t* context_lens;  // null: the dense form
  int64_t queries, tokens;      // of the dense form, a sequence
  bool offset_given;
  int64_t offset;
  Visibility rule;

  SeenKeys keys(int64_t sequence, int64_t i) const {
    if (context_lens) {
      const int64_t length = context_lens[sequence];
      const KeyRange range = visible_keys(Visibility{true, rule.window_left, -1}, 0, length - 1, length);
      return {range.first, range.end, nullptr, 0};
    }
    const KeyRange range = visible_keys(rule, i, offset_given ? offset : tokens - queries, tokens);
    if (!is_given(q_segments)) return {range.first, range.end, nullptr, 0};
    const int32_t own = static_cast<const int32_t*>(q_segments.data)[sequence * q_segments.strides[0] + i];
    return {range.first, own < 0 ? range.first : range.end, static_cast<const int32_t*>(kv_segments.data) + sequence * kv_segments.strides[0], own};
  }
};

// The row of a query, head, of q_nope, q_rope or out: [B, Sq, H, D], or of the paged form [N, H, D].
template <class T> static inline T* row_of(const View& view, int64_t sequence, int64_t i, int64_t head) {
  const int64_t at = view.rank - 2;  // heads
  return static_cast<T*>(view.data) + sequence * view.strides[0] + (at > 1 ? i * view.strides[1] : 0) + head * view.strides[at];
}
static inline float* lse_place(const View& lse, int64_t sequence, int64_t i, int64_t head) {
  return static_cast<float*>(lse.data) + sequence * lse.strides[0] + head * lse.strides[1] + i;
}
// A head's part of row r of w_kc or w_vc, [R, H, D].
template <class T> static inline const T* weight_row(const View& view, int64_t r, int64_t head) {
  return static_cast<const T*>(view.data) + r * view.strides[0] + head * view.strides[1];
}
