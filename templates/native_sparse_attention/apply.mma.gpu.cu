// apply_native_sparse_attention, forward, mma: 16 query heads of a kv head as the rows of a tile on mma.sync; the warps of a block share a
// query's keys.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "native_sparse_attention/select_blocks_gpu.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
$require D % 32 == 0 and Dv % 16 == 0
#include "native_sparse_attention/head_tile.h"

// Block (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y.
KERNEL(THREADS, ${blocks_a_processor}) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z();
  const int token = grid_x() - 1 - block_x(), own = token / static_cast<int>(block_size);
  // First the values, then in their place the warps' parts.
  float* parts = reinterpret_cast<float*>(dynamic_shared());
  Element* staged = reinterpret_cast<Element*>(dynamic_shared()) + warp() * STAGED;
  uint32_t* bits = reinterpret_cast<uint32_t*>(dynamic_shared() + ${tile_bytes});
  __shared__ Softmax softmax[WARPS * HEADS];
  if (warp() == 0) name_blocks(bits, block_indices_view, block_counts_view, batch, token, kv_head, named_blocks, own);
  sync_block();
  const SelectedBlocks blocks{bits, block_size};
#pragma unroll 1
  for (int first = 0; first < heads; first += HEADS) {
    const int first_head = kv_head * heads + first, rows = heads - first < HEADS ? heads - first : HEADS;
    HeadTile tile;
    tile.start(q.row(batch, token, first_head), q.head_stride, rows);
    tile.attend(k.row(batch, 0, kv_head), k.token_stride, v.row(batch, 0, kv_head), v.token_stride, WarpChunks(blocks, {0, token + 1}), staged,
                softmax_scale * LOG2_E);
    sync_block();
    tile.store_part(parts, softmax);
    sync_block();
#pragma unroll 1
    for (int row = warp(); row < rows; row += WARPS) {
      const WholeRow whole(softmax, row);
      Element* to = out.row(batch, token, first_head + row);
#pragma unroll
      for (int d = lane(); d < DV; d += WARP) to[d] = from_float<Element>(whole.value(parts, row, d));
      if (is_given(lse_view) && lane() == 0)
        static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + (first_head + row) * lse_view.strides[1] + token * lse_view.strides[2]] =
            whole.lse();
    }
    sync_block();
  }
}
