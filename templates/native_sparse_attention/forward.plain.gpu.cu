// native_sparse_attention, or its branch of blocks alone, forward, plain: rows by the definition, ROWS query heads a warp. Takes every
// type, stride and option.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROWS = 4, FEATURES = 16;  // query heads a warp, features of each a lane
#include "native_sparse_attention/gates.h"

#include "native_sparse_attention/head_rows.h"

// Block (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), first_head = kv_head * heads;
$if packed
  const int place = grid_x() - 1 - block_x();
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, place, grid_x());
  if (sequence.length == 0) {
    clear_tokens<WARPS>(${gated ? 'out_view, branch_lse_view, selected_view' : 'out_view, lse_view'}, place, place + 1, kv_head, heads);
    return;
  }
  const int token = place - static_cast<int>(sequence.first), own = token / static_cast<int>(block_size);
  const View keys = view_from(k_view, sequence.first), values = view_from(v_view, sequence.first);
$else
  const int token = grid_x() - 1 - block_x(), own = token / static_cast<int>(block_size);
$end
  HeadRows rows{reinterpret_cast<float*>(dynamic_shared()), q_view.shape[3], v_view.shape[3], batch, token, kv_head, softmax_scale};
  float *queries = reinterpret_cast<float*>(dynamic_shared()), *lse_of_means = queries + (heads + ROWS - 1) / ROWS * ROWS * rows.head_dim;
$if gated
  float* importance = lse_of_means + (heads + ROWS - 1) / ROWS * ROWS;
  uint32_t* bits = reinterpret_cast<uint32_t*>(importance + means);
  const View mean_keys = view_of_means(key_means${packed ? ' + sequence.first_mean(block_size) * k_view.shape[2] * rows.head_dim' : ''}, means, k_view.shape[2], rows.head_dim);
  const View mean_values = view_of_means(is_given(g_cmp_view) ? value_means${packed ? ' + sequence.first_mean(block_size) * k_view.shape[2] * rows.value_dim' : ''} : key_means, means, k_view.shape[2], rows.value_dim);
  const int past = (token + 1) / static_cast<int>(block_size);
  const bool blocked = is_given(g_slc_view), named = is_given(block_indices_view);
$else
  uint32_t* bits = reinterpret_cast<uint32_t*>(lse_of_means);
$end
  const SelectedBlocks blocks{bits, block_size}, all{nullptr, 1};
  load_queries(queries, q_view, batch, ${packed ? 'place' : 'token'}, first_head, heads);
  sync_block();
  float gate[ROWS], result[ROWS][FEATURES], lse[ROWS];
$if gated
  if (blocked && !named && room_beside(named_blocks, own) < own - 1) {
#pragma unroll 1
    for (int first = warp() * ROWS; first < heads; first += WARPS * ROWS) {
      rows.queries = queries + first * rows.head_dim;
      attend_branch<false, float>(rows, mean_keys, mean_values, {0, past}, all, gate, result, lse);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (lane() == 0) lse_of_means[first + r] = lse[r];
    }
    sync_block();
    rows.queries = queries;
    find_importance(importance, rows, lse_of_means, heads, mean_keys, past);
    sync_block();
  }
  if (warp() == 0) {
    if (named)
      name_blocks(bits, block_indices_view, block_counts_view, batch, ${packed ? 'place' : 'token'}, kv_head, named_blocks, own);
    else if (blocked)
      choose_blocks(bits, importance, own, named_blocks);
    store_selected(selected_view, blocked ? bits : nullptr, batch, ${packed ? 'place' : 'token'}, kv_head, own);
  }
$else
  if (warp() == 0) name_blocks(bits, block_indices_view, block_counts_view, batch, ${packed ? 'place' : 'token'}, kv_head, named_blocks, own);
$end
  sync_block();
#pragma unroll 1
  for (int first = warp() * ROWS; first < heads; first += WARPS * ROWS) {
    rows.queries = queries + first * rows.head_dim;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int i = 0; i < FEATURES; ++i) result[r][i] = 0;
$if gated
#pragma unroll 1
    for (int branch = MEANS; branch <= WINDOW; ++branch) {
      const View& gates = branch == MEANS ? g_cmp_view : branch == BLOCKS ? g_slc_view : g_swa_view;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        gate[r] = is_given(gates) && first + r < heads ? gate_of(gates, batch, ${packed ? 'place' : 'token'}, first_head + first + r) : 0;
        lse[r] = -INFINITE;
      }
      if (is_given(gates) && branch == MEANS)
        attend_branch<true, float>(rows, mean_keys, mean_values, {0, past}, all, gate, result, lse);
      else if (is_given(gates))
        attend_branch<true, Element>(rows, ${packed ? 'keys, values' : 'k_view, v_view'},
                                     branch == BLOCKS ? KeyRange{0, token + 1} : visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1),
                                     branch == BLOCKS ? blocks : all, gate, result, lse);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (lane() == 0 && first + r < heads)
          store_branch_lse(branch_lse_view, batch, ${packed ? 'place' : 'token'}, first_head + first + r, static_cast<Branch>(branch), lse[r] * LN_2);
    }
$else
#pragma unroll
    for (int r = 0; r < ROWS; ++r) gate[r] = 1;
    attend_branch<true, Element>(rows, ${packed ? 'keys, values' : 'k_view, v_view'}, {0, token + 1}, blocks, gate, result, lse);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (is_given(lse_view) && lane() == 0 && first + r < heads)
        static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + (first_head + first + r) * lse_view.strides[1] + ${packed ? 'place' : 'token'} * lse_view.strides[2]] =
            lse[r] * LN_2;
$end
    const Heads<Element> out(out_view);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (first + r >= heads) continue;
      Element* to = out.row(batch, ${packed ? 'place' : 'token'}, first_head + first + r);
#pragma unroll
      for (int i = 0; i < FEATURES; ++i)
        if (lane() + WARP * i < rows.value_dim) to[lane() + WARP * i] = from_float<Element>(result[r][i]);
    }
  }
}
