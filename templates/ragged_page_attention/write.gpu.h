// ragged_page_attention_v3 on GPUs: an entry that writes the new keys and values to their slots. A launch of its own: a block that attends would else have to wait
// for those that write what it reads, which may run after it. Part of a template, which has defined Element and Cached before.
#pragma once
#include "device/number/quantise.h"
#include "device/tile/launch_order.h"
#include "ragged_page_attention/ragged_batch.h"

constexpr int WRITE_THREADS = 128;

// Block x: token x. ALIGNED: rows of PACK elements begin where packs may.
KERNEL(WRITE_THREADS, 1) write(${parameters('write')}) {
  wait_for_previous_launch();
  let_next_launch_go();
  const RaggedBatch batch{query_start_loc, context_lens, distribution[2], grid_x()};
  const int64_t token = block_x();
  const RaggedSequence sequence = batch[batch.sequence_of(token)];
  const int64_t position = sequence.old_keys() + token - sequence.first;
  if (token < sequence.first || sequence.number == batch.count || position < 0) return;
  const int64_t page = block_tables[sequence.number * table_row + position / page_size];
  Cached* const slot = kv_pages + page * page_stride + position % page_size * slot_stride;
  const int dim = static_cast<int>(features);
#pragma unroll 1
  for (int i = thread_x(); i < 2 * static_cast<int>(kv_heads) * dim; i += WRITE_THREADS) {
    const int row = i / dim, feature = i % dim, head = row / 2;
    const Element x = row % 2 == 0 ? keys[token * key_token + head * key_head + feature] : values[token * value_token + head * value_head + feature];
    const float* const scales = row % 2 == 0 ? k_scale : v_scale;
    const int64_t stride = row % 2 == 0 ? k_scale_stride : v_scale_stride;
    slot[row * head_stride + feature] = scales ? cached<Cached>(to_float(x) / scales[head * stride]) : cached<Cached>(to_float(x));
  }
}
