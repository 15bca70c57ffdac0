// GPU vocabulary: the entries of the gradient of native sparse attention's keys that multiply, on mma.sync or, with `by_waves`, MFMA or WMMA: 64 keys through a
// list of tokens. Part of a template, which has defined before: Element, D and DV (multiples of 16).
#pragma once
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/key_sums.h"
#include "native_sparse_attention/token_lists.h"
#include "native_sparse_attention/token_row.h"

static inline BranchInputs inputs_of(const View& q, const View& dout, const View& lse, const View& gates, const float* delta, int branch,
                                     int heads, float unit) {
  return {q, dout, lse, gates, delta, ${gated ? 'branch * lse.strides[2]' : '0'}, branch, static_cast<int>(q.shape[2]), heads,
          static_cast<int>(block_z()), static_cast<int>(block_y()), static_cast<int>(q.shape[1]), unit};
}

// Block (x, y, z): a part of a list of kv head y of row z of the batch, and 64 keys of its block.
KERNEL(KEY_THREADS, ${by_waves ? 1 : 2}) differentiate_blocks(${parameters('differentiate_blocks')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % tiles_a_block), number = static_cast<int>(block_x() / tiles_a_block);
  const int tokens = static_cast<int>(q_view.shape[1]);
  const ListPart part = reinterpret_cast<const ListPart*>(list_parts)[kv_row * parts + number];
  if (part.block < 0) return;
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, part.block, block_size, true, tokens);
  const int end = static_cast<int>(block.of.first + block.of.length);
  const int first = static_cast<int>(block.of.first + block.number * block_size) + tile * KEYS, left = static_cast<int>(block_size) - tile * KEYS;
$else
  const int first = part.block * static_cast<int>(block_size) + tile * KEYS, left = static_cast<int>(block_size) - tile * KEYS;
$end
  int keys = ${packed ? 'end' : 'tokens'} - first < left ? ${packed ? 'end' : 'tokens'} - first : left;
  if (keys > KEYS) keys = KEYS;
  if (keys <= 0) return;
  const View none = no_view();
  KeySums sums;
  sums.sum({list_tokens + kv_row * listed + part.first, 0, part.count, first, keys, -1, 0${packed ? ', 0' : ''}},
           inputs_of(q_view, dout_view, ${gated ? 'branch_lse_view, g_slc_view' : 'lse_view, none'}, delta, BLOCKS, static_cast<int>(heads_a_kv_head),
                     softmax_scale * LOG2_E),
           token_row<const Element>(k_view, block_z(), first, block_y()), k_view.strides[1],
           token_row<const Element>(v_view, block_z(), first, block_y()), v_view.strides[1]);
  sums.store(block_sums + (kv_row * grid_x() + block_x()) * (KEYS * (D + DV)), keys);
}

$if gated
// Block (x, y, z): 64 keys of kv head y of row z of the batch, through the tokens in whose window they are.
KERNEL(KEY_THREADS, ${by_waves ? 1 : 2}) differentiate_window(${parameters('differentiate_window')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
$if packed
  const SequencePart tile = part_of_sequence(cum_seqlens, sequences, block_x(), KEYS, true, q_view.shape[1]);
  if (tile.of_none || !tile.is_there(KEYS)) return;
  const int tokens = static_cast<int>(tile.of.first + tile.of.length), first = static_cast<int>(tile.of.first + tile.number * KEYS);
  const int keys = tokens - first < KEYS ? tokens - first : KEYS;
$else
  const int tokens = static_cast<int>(q_view.shape[1]), first = static_cast<int>(block_x()) * KEYS, keys = tokens - first < KEYS ? tokens - first : KEYS;
$end
  const int64_t last = window_left < 0 || window_left > tokens ? tokens : first + keys + window_left;
  const int window = window_left < 0 || window_left > tokens ? -1 : static_cast<int>(window_left);
  KeySums sums;
  sums.sum({nullptr, first, static_cast<int>(last < tokens ? last : tokens) - first, first, keys, window, 0${packed ? ', 0' : ''}},
           inputs_of(q_view, dout_view, branch_lse_view, g_swa_view, delta, WINDOW, static_cast<int>(heads_a_kv_head), softmax_scale * LOG2_E),
           token_row<const Element>(k_view, block_z(), first, block_y()), k_view.strides[1],
           token_row<const Element>(v_view, block_z(), first, block_y()), v_view.strides[1]);
  sums.store(window_sums + (kv_row * grid_x() + block_x()) * (KEYS * (D + DV)), keys);
}

// Block (x, y, z): 64 means of kv head y of row z of the batch, through mean_tokens tokens.
KERNEL(KEY_THREADS, ${by_waves ? 1 : 2}) differentiate_means(${parameters('differentiate_means')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % mean_tiles), part = static_cast<int>(block_x() / mean_tiles);
$if packed
  const SequencePart own = part_of_sequence(cum_seqlens, sequences, tile, KEYS * block_size, true, q_view.shape[1]);
  const int size = static_cast<int>(block_size), start = static_cast<int>(own.of.first), tokens = static_cast<int>(own.of.first + own.of.length);
  const int first = static_cast<int>(own.number) * KEYS, left = own.of_none ? 0 : static_cast<int>(own.of.length) / size - first, keys = left < KEYS ? left : KEYS;
  if (keys <= 0) return;
  const int64_t end = (part + 1) * mean_tokens < tokens ? (part + 1) * mean_tokens : tokens, seen = start + (first + int64_t{1}) * size - 1;
  const int64_t before = own.of.first_mean(block_size);
$else
  const int tokens = static_cast<int>(q_view.shape[1]), size = static_cast<int>(block_size);
  const int first = tile * KEYS, keys = static_cast<int>(means) - first < KEYS ? static_cast<int>(means) - first : KEYS;
  const int64_t end = (part + 1) * mean_tokens < tokens ? (part + 1) * mean_tokens : tokens, seen = (first + int64_t{1}) * size - 1;
$end
  const int64_t begin = part * mean_tokens > seen ? part * mean_tokens : seen;
  const int64_t row = kv_row * means + ${packed ? 'before + ' : ''}first;
  KeySums sums;
  sums.sum({nullptr, static_cast<int>(begin), static_cast<int>(end > begin ? end - begin : 0), first, keys, -1, size${packed ? ', start' : ''}},
           inputs_of(q_view, dout_view, branch_lse_view, g_cmp_view, delta, MEANS, static_cast<int>(heads_a_kv_head), softmax_scale * LOG2_E),
           reinterpret_cast<const Element*>(mean_keys) + row * D, D, reinterpret_cast<const Element*>(mean_values) + row * DV, DV);
  sums.store(mean_sums + ((part * q_view.shape[0] * grid_y() + kv_row) * means + ${packed ? 'before + ' : ''}first) * (D + DV), keys);
}
$end
