// GPU vocabulary: the launch that makes the list of block_steps.h. At the end of a template.
#pragma once

// A warp a row of the mask.
KERNEL(128, 1) list_blocks(${parameters('list_blocks')}) {
  const int64_t row = int64_t{block_x()} * (128 / WARP) + warp(), of_heads = row / query_blocks;
  if (row >= mask_rows) return;
  const int64_t batch = of_heads / block_mask_view.shape[1], head = of_heads % block_mask_view.shape[1];
  const bool* on = static_cast<const bool*>(block_mask_view.data) + row_offset(block_mask_view, batch, head, row % query_blocks);
  list_runs(runs + row * runs_a_row * 2, on, block_mask_view.shape[3], 1, block_k);
}
