// ragged_page_attention_v3 on CPUs: an entry that writes the new keys and values to their slots, and adds nothing else to the pages. Part of a
// template, which has defined Element and Cached before.
#pragma once
#include "device/number/quantise.h"
#include "ragged_page_attention/ragged_batch.h"

static void write_head(const Element* from, Cached* to, int64_t features, float scale) {
  for (int64_t d = 0; d < features; ++d) to[d] = cached<Cached>(to_float(from[d]) / scale);
}

// Item (x): token x.
static void write(${parameters('write')}, const Group& group) {
  const int64_t token = group.x;
  const RaggedBatch batch{query_start_loc, context_lens, distribution[2], group.grid_x};
  const RaggedSequence sequence = batch[batch.sequence_of(token)];
  const int64_t position = sequence.old_keys() + token - sequence.first;
  if (token < sequence.first || sequence.number == batch.count || position < 0) return;
  Cached* slot = kv_pages + block_tables[sequence.number * table_row + position / ps] * page_stride + position % ps * slot_stride;
  for (int64_t h = 0; h < kv_heads; ++h) {
    const int64_t key = token * keys_view.strides[0] + h * keys_view.strides[1], value = token * values_view.strides[0] + h * values_view.strides[1];
    write_head(static_cast<const Element*>(keys_view.data) + key, slot + 2 * h * head_stride, features, k_scale ? k_scale[h * k_scales] : 1);
    write_head(static_cast<const Element*>(values_view.data) + value, slot + (2 * h + 1) * head_stride, features, v_scale ? v_scale[h * v_scales] : 1);
  }
}
