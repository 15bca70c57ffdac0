// Vocabulary of every backend for the attention kernels: their tensors by (batch, token, head), one sequence of a call, tensors whose type is known only
// when the kernel runs, and the dropout rule.
#pragma once
#include "device/number/philox.h"
#include "device/attention/visibility.h"

// q, k, v or out: [B, S, H, D], or packed [T, H, D]. Strides in elements.
template <class T> struct Heads {
  T* data;
  int64_t batch_stride, token_stride, head_stride, heads, tokens;

  explicit Heads(const View& view) {
    const int64_t at = view.rank - 3;
    data = static_cast<T*>(view.data);
    batch_stride = at > 0 ? view.strides[0] : 0;
    token_stride = view.strides[at], head_stride = view.strides[at + 1];
    tokens = view.shape[at], heads = view.shape[at + 1];
  }
  T* row(int64_t batch, int64_t token, int64_t head) const {
    return data + batch * batch_stride + token * token_stride + head * head_stride;
  }
};

// [B|1, Hq|1, Sq, Sk]: elements from the start to the row of a query. A dim of size 1 is broadcast.
static inline int64_t row_offset(const View& view, int64_t batch, int64_t head, int64_t query) {
  return (view.shape[0] == 1 ? 0 : batch * view.strides[0]) + (view.shape[1] == 1 ? 0 : head * view.strides[1]) + query * view.strides[2];
}

// Element types as launch arguments: bias and sinks have types of their own, on which nothing is specialised.
enum TypeCode : int64_t { TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_BOOL };

static inline __attribute__((noinline)) float element_of(const void* data, int64_t type, int64_t index) {
  if (type == TYPE_F16) return to_float(static_cast<const half*>(data)[index]);
  if (type == TYPE_BF16) return to_float(static_cast<const bfloat16*>(data)[index]);
  if (type == TYPE_BOOL) return static_cast<const bool*>(data)[index] ? 1.0f : 0.0f;
  return static_cast<const float*>(data)[index];
}

// The sinks of one query head: [Hq, A]; or [A], one a head if A is Hq, else all of them for every head.
struct Sinks {
  const void* data;
  int64_t type, first, count;

  Sinks(const View& view, int64_t type_code, int64_t head, int64_t heads) : data(view.data), type(type_code), first(0), count(0) {
    if (!is_given(view)) return;
    const bool one_a_head = view.rank == 1 && view.shape[0] == heads;
    first = view.rank == 2 ? head * view.strides[0] : one_a_head ? head : 0;
    count = one_a_head ? 1 : view.shape[view.rank - 1];
  }
  float operator[](int64_t i) const { return element_of(data, type, first + i); }
};

// One sequence of a call: row `index` of the batch, or sequence number `index` of the packed form.
struct Sequence {
  int64_t index, batch;             // batch: the row of the tensors that holds it (0 in the packed form)
  int64_t first_query, first_key;   // tokens before it in that row
  int64_t queries, keys, offset;    // query i stands at position i + offset
  bool past_the_end;                // packed: the tokens after the last sequence, which see nothing, not even sinks
  int32_t padding;                  // so many of the last queries see no key; where the struct has room, for a larger one costs registers

  int64_t seeing() const { return queries - padding; }
};

// The keys a query sees by causality, window and lengths. Ranges move forwards with the queries, empty ones too.
static inline KeyRange visible_keys(const Visibility& rule, const Sequence& s, int64_t query) {
  return query < s.seeing() ? visible_keys(rule, query, s.offset, s.keys) : KeyRange{s.keys, s.keys};
}

// The sequences of a call.
struct Sequences {
  const int32_t *cum_queries, *cum_keys;  // null: batched
  int64_t count, queries, keys;           // packed: sequences and all tokens; batched: rows of the batch and tokens of each
  bool offset_given;
  int64_t offset;
  const int32_t *query_lengths = nullptr, *key_lengths = nullptr;  // batched: tokens of each row that are no padding; null: all

  static int64_t limited(int64_t length, int64_t tokens) { return length < 0 ? 0 : length < tokens ? length : tokens; }

  Sequence operator[](int64_t n) const {
    Sequence s{n, n, 0, 0, queries, keys, 0, false, 0};
    if (cum_queries) {
      s.batch = 0;
      s.past_the_end = n == count;
      s.first_query = cum_queries[n], s.first_key = cum_keys[n];
      s.queries = (n == count ? queries : cum_queries[n + 1]) - s.first_query;
      s.keys = n == count ? 0 : cum_keys[n + 1] - s.first_key;
    }
    if (key_lengths) s.keys = limited(key_lengths[n], keys);
    if (query_lengths) s.padding = static_cast<int32_t>(queries - limited(query_lengths[n], queries));
    s.offset = offset_given ? offset : s.keys - s.seeing();
    return s;
  }

  // Item number `item` of the packed form, where each item is up to `item_rows` rows of one sequence, `token_rows` rows a token: its
  // sequence, its number there, and how many there are of it. False if there are fewer items than that.
  bool find(int64_t& item, int64_t item_rows, int64_t token_rows, Sequence& sequence, int64_t& items) const {
    for (int64_t n = 0; n <= count; ++n) {
      sequence = (*this)[n];
      items = (sequence.queries * token_rows + item_rows - 1) / item_rows;
      if (item < items) return true;
      item -= items;
    }
    return false;
  }
};
