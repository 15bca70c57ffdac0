// Vocabulary of every backend: whether a query's list names a block.
#pragma once
#include "device/view.h"

// Rows of block_indices (or of the blocks that a forward pass selected), of which counts, where given, say how many count.
struct NamedBlocks {
  const View &indices, &counts;

  const int32_t* row(int64_t batch, int64_t token, int64_t kv_head) const {
    return static_cast<const int32_t*>(indices.data) + batch * indices.strides[0] + token * indices.strides[1] + kv_head * indices.strides[2];
  }
  int64_t count(int64_t batch, int64_t token, int64_t kv_head) const {
    if (!is_given(counts)) return indices.shape[3];
    const int64_t some =
        static_cast<const int32_t*>(counts.data)[batch * counts.strides[0] + token * counts.strides[1] + kv_head * counts.strides[2]];
    return some < indices.shape[3] ? some : indices.shape[3];
  }
  bool has(int64_t batch, int64_t token, int64_t kv_head, int64_t block) const {
    const int32_t* named = row(batch, token, kv_head);
    const int64_t end = count(batch, token, kv_head);
    for (int64_t i = 0; i < end; ++i)
      if (named[i] == block) return true;
    return false;
  }
};
