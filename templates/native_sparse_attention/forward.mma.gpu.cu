// native_sparse_attention, forward, mma: 16 query heads of a kv head as the rows of a tile on mma.sync, whose keys the warps of a block
// share. Means, and the importance of blocks, are in f32 by the definition.
#include "device/gpu.h"
#include "device/attention/attention.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROWS = 4, FEATURES = (DV + WARP - 1) / WARP;  // of means: query heads a warp, features of each a lane
$require D % 32 == 0 and Dv % 16 == 0
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/head_rows.h"
#include "native_sparse_attention/head_tile.h"

// The blocks that a query selects, by all threads; ends with a barrier.
static inline void select_blocks(uint32_t* bits, float* importance, float* lse_of_means, HeadRows rows, int heads, const View& mean_keys, int past, int own,
                                 int64_t count) {
  float* queries = const_cast<float*>(rows.queries);
  if (room_beside(count, own) < own - 1) {
    float gate[ROWS], result[ROWS][FEATURES], lse[ROWS];
#pragma unroll 1
    for (int first = warp() * ROWS; first < heads; first += WARPS * ROWS) {
      rows.queries = queries + first * D;
      attend_branch<false, float>(rows, mean_keys, mean_keys, {0, past}, {nullptr, 1}, gate, result, lse);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (lane() == 0) lse_of_means[first + r] = lse[r];
    }
    sync_block();
    rows.queries = queries;
    find_importance(importance, rows, lse_of_means, heads, mean_keys, past);
    sync_block();
  }
  if (warp() == 0) choose_blocks(bits, importance, own, count);
}

// Block (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y.
KERNEL(THREADS, ${blocks_a_processor}) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), kv_first = kv_head * heads;
  const int token = grid_x() - 1 - block_x(), own = token / static_cast<int>(block_size), past = (token + 1) / static_cast<int>(block_size);
  // First the values of a branch, then in their place the warps' parts.
  float* parts = reinterpret_cast<float*>(dynamic_shared());
  Element* staged = reinterpret_cast<Element*>(dynamic_shared()) + warp() * STAGED;
  float *results = reinterpret_cast<float*>(dynamic_shared() + ${tile_bytes}), *queries = results + HEADS * DV;
  float *lse_of_means = queries + (heads + ROWS - 1) / ROWS * ROWS * D, *importance = lse_of_means + (heads + ROWS - 1) / ROWS * ROWS;
  uint32_t* bits = reinterpret_cast<uint32_t*>(importance + means);
  __shared__ Softmax softmax[WARPS * HEADS];
  HeadRows rows{queries, D, DV, batch, token, kv_head, softmax_scale};
  const View mean_keys = view_of_means(key_means, means, k_view.shape[2], D);
  const bool blocked = is_given(g_slc_view), named = is_given(block_indices_view);
  load_queries(queries, q_view, batch, token, kv_first, heads);
  sync_block();
  if (blocked && !named) select_blocks(bits, importance, lse_of_means, rows, heads, mean_keys, past, own, named_blocks);
  if (warp() == 0) {
    if (named) name_blocks(bits, block_indices_view, block_counts_view, batch, token, kv_head, named_blocks, own);
    store_selected(selected_view, blocked ? bits : nullptr, batch, token, kv_head, own);
  }
  sync_block();
  const SelectedBlocks blocks{bits, block_size}, all{nullptr, 1};
#pragma unroll 1
  for (int first = 0; first < heads; first += HEADS) {
    const int first_head = kv_first + first, count = heads - first < HEADS ? heads - first : HEADS;
#pragma unroll 1
    for (int row = warp() * ROWS; row < count; row += WARPS * ROWS) {
      float gate[ROWS], result[ROWS][FEATURES] = {}, lse[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        lse[r] = -INFINITE;
        gate[r] = is_given(g_cmp_view) && row + r < count ? gate_of(g_cmp_view, batch, token, first_head + row + r) : 0;
      }
      rows.queries = queries + (first + row) * D;
      if (is_given(g_cmp_view))
        attend_branch<true, float>(rows, mean_keys, view_of_means(value_means, means, k_view.shape[2], DV), {0, past}, all, gate, result, lse);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < FEATURES; ++i)
          if (lane() + WARP * i < DV) results[(row + r) * DV + lane() + WARP * i] = result[r][i];
        if (lane() == 0 && row + r < count) store_branch_lse(branch_lse_view, batch, token, first_head + row + r, MEANS, lse[r] * LN_2);
      }
    }
#pragma unroll 1
    for (int branch = BLOCKS; branch <= WINDOW; ++branch) {
      const View& gates = branch == BLOCKS ? g_slc_view : g_swa_view;
      if (is_given(gates)) {
        HeadTile tile;
        tile.start(q.row(batch, token, first_head), q.head_stride, count);
        const KeyRange seen = branch == BLOCKS ? KeyRange{0, token + 1} : visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1);
        tile.attend(k.row(batch, 0, kv_head), k.token_stride, v.row(batch, 0, kv_head), v.token_stride,
                    WarpChunks(branch == BLOCKS ? blocks : all, seen), staged, softmax_scale * LOG2_E);
        sync_block();
        tile.store_part(parts, softmax);
      }
      sync_block();
#pragma unroll 1
      for (int row = warp(); row < count; row += WARPS) {
        float lse = -INFINITE;
        if (is_given(gates)) {
          const WholeRow whole(softmax, row);
          const float gate = gate_of(gates, batch, token, first_head + row);
#pragma unroll
          for (int d = lane(); d < DV; d += WARP) results[row * DV + d] += gate * whole.value(parts, row, d);
          lse = whole.lse();
        }
        if (lane() == 0) store_branch_lse(branch_lse_view, batch, token, first_head + row, static_cast<Branch>(branch), lse);
      }
      sync_block();
    }
#pragma unroll 1
    for (int row = warp(); row < count; row += WARPS) {
      Element* to = out.row(batch, token, first_head + row);
#pragma unroll
      for (int d = lane(); d < DV; d += WARP) to[d] = from_float<Element>(results[row * DV + d]);
    }
    sync_block();
  }
}
