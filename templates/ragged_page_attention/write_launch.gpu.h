// ragged_page_attention_v3 on GPUs: an entry that writes the new keys and values to their slots. A launch of its own: a block that attends would else have to wait
// for those that write what it reads, which may run after it. Part of a template: see write.gpu.h.
#pragma once
#include "device/tile/launch_order.h"
#include "ragged_page_attention/write.gpu.h"

constexpr int WRITE_THREADS = 128, WRITE_TOKENS = WRITE_THREADS / WARP;

KERNEL(WRITE_THREADS, 1) write(${parameters('write')}) {
  wait_for_previous_launch();
  let_next_launch_go();
  const NewTokens fresh{{keys, values, key_token, key_head, value_token, value_head, k_scale, v_scale, k_scale_stride, v_scale_stride},
                        kv_pages, page_stride, slot_stride, head_stride, block_tables, table_row, page_size, features, kv_heads};
  const int64_t token = int64_t{block_x()} * WRITE_TOKENS + warp();
  if (token < tokens) fresh.write({query_start_loc, context_lens, distribution[2], tokens}, token);
}
