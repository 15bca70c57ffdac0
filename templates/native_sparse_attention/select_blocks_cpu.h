// CPU vocabulary: which blocks a query selects, and means over blocks.
#pragma once
#include "native_sparse_attention/packed_tokens.h"
#include "native_sparse_attention/selected_blocks.h"

static inline void add_block(uint32_t* bits, int64_t block) { bits[block / 32] |= uint32_t{1} << block % 32; }

// The first `count` of a row of block_indices, or fewer where block_counts says so; none behind the query's own block.
static void name_blocks(uint32_t* bits, const View& indices, const View& counts, int64_t batch, int64_t token, int64_t kv_head, int64_t count,
                        int64_t own) {
  if (is_given(counts)) {
    const int64_t some =
        static_cast<const int32_t*>(counts.data)[batch * counts.strides[0] + token * counts.strides[1] + kv_head * counts.strides[2]];
    if (some < count) count = some;
  }
  const int32_t* row =
      static_cast<const int32_t*>(indices.data) + batch * indices.strides[0] + token * indices.strides[1] + kv_head * indices.strides[2];
  for (int64_t i = 0; i < count; ++i)
    if (row[i] >= 0 && row[i] <= own) add_block(bits, row[i]);
}

static int64_t count_from(const float* importance, int64_t own, uint32_t least) {
  int32_t count = 0;
  for (int64_t block = 1; block < own; ++block) count += order_of(importance[block]) >= least ? 1 : 0;
  return count;
}

// Block 0, the query's own, and the `count` less two of the others before it whose importance is largest; of equal ones the first. Bit by
// bit the importance is found that as many blocks reach.
static void choose_blocks(uint32_t* bits, const float* importance, int64_t own, int64_t count) {
  add_block(bits, 0);
  if (count > 1) add_block(bits, own);
  const int64_t room = room_beside(count, own);
  if (room >= own - 1) {
    for (int64_t block = 1; block < own; ++block) add_block(bits, block);
    return;
  }
  if (room <= 0) return;
  uint32_t least = 0;
  int64_t reach = own - 1;  // so many have an importance of `least` or more
  for (uint32_t bit = uint32_t{1} << 31; bit > 0 && reach > room; bit >>= 1) {
    const int64_t count = count_from(importance, own, least | bit);
    if (count >= room) least |= bit, reach = count;
  }
  int64_t equal = room - (least < 0xffffffffu ? count_from(importance, own, least + 1) : 0);
  for (int64_t block = 1; block < own; ++block) {
    const uint32_t order = order_of(importance[block]);
    if (order > least || (order == least && equal-- > 0)) add_block(bits, block);
  }
}

// The blocks in rising order, then -1.
static void store_selected(const View& selected, const SelectedBlocks& blocks, int64_t batch, int64_t token, int64_t kv_head, int64_t own) {
  if (!is_given(selected)) return;
  int32_t* to =
      static_cast<int32_t*>(selected.data) + batch * selected.strides[0] + token * selected.strides[1] + kv_head * selected.strides[2];
  int64_t i = 0;
  for (int64_t block = 0; blocks.bits && block <= own; ++block)
    if (blocks.has(block)) to[i++] = static_cast<int32_t>(block);
  for (; i < selected.shape[3]; ++i) to[i] = -1;
}

// The mean of `size` rows.
template <class T> static void mean_of_rows(const T* from, int64_t stride, int64_t size, int64_t features, float* to) {
  for (int64_t d = 0; d < features; ++d) to[d] = 0;
  for (int64_t t = 0; t < size; ++t)
    for (int64_t d = 0; d < features; ++d) to[d] += to_float(from[t * stride + d]);
  for (int64_t d = 0; d < features; ++d) to[d] /= static_cast<float>(size);
}
