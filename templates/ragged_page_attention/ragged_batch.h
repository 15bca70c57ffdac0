// Vocabulary of every backend: the sequences of a call of ragged_page_attention, and which keys their queries see.
#pragma once
#include "device/view.h"

// Sequence `number`: new tokens [first, first + queries) of the batch, and `keys` keys, of which the last `queries` are their own.
struct RaggedSequence {
  int64_t number, first, queries, keys;
  int64_t old_keys() const { return keys - queries; }  // below 0: so many of the first new tokens have no key
};

struct RaggedBatch {
  const int32_t *starts, *contexts;
  int64_t count, tokens;  // sequences, tokens of the batch's tensors

  // Number `count`: the tokens past the last sequence, which see nothing.
  RaggedSequence operator[](int64_t n) const {
    const int64_t first = starts[n];
    return {n, first, (n < count ? starts[n + 1] : tokens) - first, n < count ? contexts[n] : 0};
  }

  // The sequence of a token.
  int64_t sequence_of(int64_t token) const {
    int64_t low = 0, high = count;  // the last n of these whose first token is not behind it
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (starts[middle] <= token) low = middle;
      else high = middle - 1;
    }
    return low;
  }
};

// The new tokens that a query sees in the place of those before it: columns of its row, of `columns`; null: causality.
struct TreeRow {
  const bool* row;
  int64_t columns, old_keys;

  TreeRow(const View& tree_mask, const RaggedSequence& sequence, int64_t query)
      : row(nullptr), columns(0), old_keys(sequence.old_keys()) {
    if (!is_given(tree_mask)) return;
    row = static_cast<const bool*>(tree_mask.data) + (sequence.first + query) * tree_mask.strides[0];
    columns = tree_mask.shape[1];
  }
  bool hides(int64_t key) const { return row && key >= old_keys && (key - old_keys >= columns || !row[key - old_keys]); }
};
