// GPU vocabulary: the entry that finds, by a warp (with `by_waves`, a wave) a token, the sums over means and the blocks that are selected. Part of
// a template, as select_tile.h, which has defined SELECT_WARPS, too.
#pragma once
$if lists
#include "native_sparse_attention/block_lists_gpu.h"
$end
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/select_blocks_gpu.h"
$if by_waves
#include "native_sparse_attention/wave_select_tile.h"
$else
#include "native_sparse_attention/select_tile.h"
$end

// Block (x, y, z): SELECT_WARPS tokens of row z of the batch, the last first, and kv head y: of each query head the logarithm of its sum over
// means, and the blocks that the token selects.
KERNEL(SELECT_WARPS * ${by_waves ? 'WAVE, 1' : lists ? 'WARP, 3' : 'WARP, 4'}) select(${parameters('select')}) {
  const Heads<const Element> q(q_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), words = static_cast<int>(block_words);
  const int token = (grid_x() - 1 - block_x()) * SELECT_WARPS + ${team}(), tokens = static_cast<int>(q.tokens);
  if (token >= tokens) return;
$if packed
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, token, tokens);
  if (sequence.length == 0) return;
  const int number = token - static_cast<int>(sequence.first);  // in the sequence
$end
  const int own = ${packed ? 'number' : 'token'} / static_cast<int>(block_size), past = (${packed ? 'number' : 'token'} + 1) / static_cast<int>(block_size);
  float* const importance = reinterpret_cast<float*>(dynamic_shared()) + ${team}() * (means + words);
  uint32_t* const bits = reinterpret_cast<uint32_t*>(importance + means);
  const int64_t kv_heads = q.heads / heads, row_of_means = (batch * kv_heads + kv_head) * means${packed ? ' + sequence.first_mean(block_size)' : ''};
  const bool selects = is_given(g_slc_view) && !is_given(block_indices_view), chooses = selects && room_beside(named_blocks, own) < own - 1;
#pragma unroll 1
  for (int first = 0; first < heads; first += SELECT_HEADS) {
    if (!is_given(g_cmp_view) && !chooses) break;
    const int first_head = kv_head * heads + first, count = heads - first < SELECT_HEADS ? heads - first : SELECT_HEADS;
    const SelectTile tile(q.row(batch, token, first_head), q.head_stride, count, reinterpret_cast<const Element*>(mean_keys) + row_of_means * D,
                          q_view.shape[0] * kv_heads * means * D, softmax_scale * LOG2_E);
    float lse[${by_waves ? 'SUMS' : '2'}];
    tile.find_lse(lse, past);
#pragma unroll
    for (int r = 0; r < ${by_waves ? 'SUMS' : '2'}; ++r) {
      const int head = ${by_waves ? 'matrix_row(r)' : 'lane() / 4 + 8 * r'};
      if (!is_given(g_cmp_view) || head >= count || ${by_waves ? 'matrix_column()' : 'lane() % 4'} != 0) continue;
      mean_lse[(batch * q.heads + first_head + head) * tokens + token] = lse[r];
      store_branch_lse(branch_lse_view, batch, token, first_head + head, MEANS, lse[r] * LN_2);
    }
    if (chooses) tile.add_importance(importance, lse, count, past, first == 0);
  }
  if (!selects) return;
  sync_${team}();
$if by_waves
  if (wave_lane() >= WARP) return;  // the rest is a warp's
$end
  choose_blocks(bits, importance, own, named_blocks);
  store_selected(selected_view, bits, batch, token, kv_head, own);
$if lists
  store_block_list(block_lists + ((batch * kv_heads + kv_head) * tokens + token) * listed_blocks, static_cast<int>(listed_blocks), bits, own);
$else
  int32_t* const to = block_bits + ((batch * kv_heads + kv_head) * tokens + token) * words;
#pragma unroll 1
  for (int word = lane(); word < words; word += WARP) to[word] = word <= own / 32 ? static_cast<int32_t>(bits[word]) : 0;
$end
}
