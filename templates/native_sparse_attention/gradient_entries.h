// GPU vocabulary: the entries of the gradient of native sparse attention's keys, through lists of the tokens that select a block: a long list goes in
// parts, whose sums `finish` adds up in order. Part of a template, which has defined before: Element, D, DV (multiples of 16) and SMALL.
#pragma once
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/key_sums.h"
#include "native_sparse_attention/token_lists.h"
#include "native_sparse_attention/token_row.h"

static inline View no_view() { return {nullptr, -1, {}, {}}; }

// The lists of row z of the batch and kv head y.
#define TOKEN_LISTS \
  const TokenLists lists{block_bits, list_counts, list_tokens, reinterpret_cast<ListPart*>(list_parts), \
                         reinterpret_cast<BlockParts*>(block_parts), static_cast<int>(tokens), static_cast<int>(blocks), \
                         static_cast<int>(block_words), static_cast<int>(listed), static_cast<int>(parts), static_cast<int>(part_tokens), \
                         static_cast<int>(block_size)}; \
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y()
KERNEL(SMALL, 1) mark_blocks(${parameters('mark_blocks')}) {
  TOKEN_LISTS;
  const View none = no_view();
$if gated
  lists.mark({selected_view, none}, kv_row, block_z(), block_y(), block_x() * SMALL + thread_x());
$else
  (void)none;
  lists.mark({block_indices_view, block_counts_view}, kv_row, block_z(), block_y(), block_x() * SMALL + thread_x());
$end
}
KERNEL(SMALL, 1) count_tokens(${parameters('count_tokens')}) {
  TOKEN_LISTS;
  const int block = static_cast<int>(block_x()) * (SMALL / WARP) + warp();
  if (block < lists.blocks) lists.count_tokens(kv_row, block);
}
KERNEL(SMALL, 1) list_tokens_of(${parameters('list_tokens_of')}) {
  TOKEN_LISTS;
  const int block = static_cast<int>(block_x()) * (SMALL / WARP) + warp();
  if (block < lists.blocks) lists.list_block(kv_row, block);
}

static inline BranchInputs inputs_of(const View& q, const View& dout, const View& lse, const View& gates, const float* delta, int branch,
                                     int heads, float unit) {
  return {q, dout, lse, gates, delta, ${gated ? 'branch * lse.strides[2]' : '0'}, branch, static_cast<int>(q.shape[2]), heads,
          static_cast<int>(block_z()), static_cast<int>(block_y()), static_cast<int>(q.shape[1]), unit};
}

// Block (x, y, z): a part of a list of kv head y of row z of the batch, and 64 keys of its block.
KERNEL(KEY_THREADS, 2) differentiate_blocks(${parameters('differentiate_blocks')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % tiles_a_block), number = static_cast<int>(block_x() / tiles_a_block);
  const int tokens = static_cast<int>(q_view.shape[1]);
  const ListPart part = reinterpret_cast<const ListPart*>(list_parts)[kv_row * parts + number];
  if (part.block < 0) return;
  const int first = part.block * static_cast<int>(block_size) + tile * KEYS, left = static_cast<int>(block_size) - tile * KEYS;
  int keys = tokens - first < left ? tokens - first : left;
  if (keys > KEYS) keys = KEYS;
  if (keys <= 0) return;
  const View none = no_view();
  KeySums sums;
  sums.sum({list_tokens + kv_row * listed + part.first, 0, part.count, first, keys, -1, 0},
           inputs_of(q_view, dout_view, ${gated ? 'branch_lse_view, g_slc_view' : 'lse_view, none'}, delta, BLOCKS, static_cast<int>(heads_a_kv_head),
                     softmax_scale * LOG2_E),
           token_row<const Element>(k_view, block_z(), first, block_y()), k_view.strides[1],
           token_row<const Element>(v_view, block_z(), first, block_y()), v_view.strides[1]);
  sums.store(block_sums + (kv_row * grid_x() + block_x()) * (KEYS * (D + DV)), keys);
}

$if gated
// Block (x, y, z): 64 keys of kv head y of row z of the batch, through the tokens in whose window they are.
KERNEL(KEY_THREADS, 2) differentiate_window(${parameters('differentiate_window')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tokens = static_cast<int>(q_view.shape[1]), first = static_cast<int>(block_x()) * KEYS, keys = tokens - first < KEYS ? tokens - first : KEYS;
  const int64_t last = window_left < 0 || window_left > tokens ? tokens : first + keys + window_left;
  const int window = window_left < 0 || window_left > tokens ? -1 : static_cast<int>(window_left);
  KeySums sums;
  sums.sum({nullptr, first, static_cast<int>(last < tokens ? last : tokens) - first, first, keys, window, 0},
           inputs_of(q_view, dout_view, branch_lse_view, g_swa_view, delta, WINDOW, static_cast<int>(heads_a_kv_head), softmax_scale * LOG2_E),
           token_row<const Element>(k_view, block_z(), first, block_y()), k_view.strides[1],
           token_row<const Element>(v_view, block_z(), first, block_y()), v_view.strides[1]);
  sums.store(window_sums + (kv_row * grid_x() + block_x()) * (KEYS * (D + DV)), keys);
}

// Block (x, y, z): 64 means of kv head y of row z of the batch, through mean_tokens tokens.
KERNEL(KEY_THREADS, 2) differentiate_means(${parameters('differentiate_means')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % mean_tiles), part = static_cast<int>(block_x() / mean_tiles);
  const int tokens = static_cast<int>(q_view.shape[1]), size = static_cast<int>(block_size);
  const int first = tile * KEYS, keys = static_cast<int>(means) - first < KEYS ? static_cast<int>(means) - first : KEYS;
  const int64_t end = (part + 1) * mean_tokens < tokens ? (part + 1) * mean_tokens : tokens, seen = (first + int64_t{1}) * size - 1;
  const int64_t begin = part * mean_tokens > seen ? part * mean_tokens : seen;
  const int64_t row = kv_row * means + first;
  KeySums sums;
  sums.sum({nullptr, static_cast<int>(begin), static_cast<int>(end > begin ? end - begin : 0), first, keys, -1, size},
           inputs_of(q_view, dout_view, branch_lse_view, g_cmp_view, delta, MEANS, static_cast<int>(heads_a_kv_head), softmax_scale * LOG2_E),
           reinterpret_cast<const Element*>(mean_keys) + row * D, D, reinterpret_cast<const Element*>(mean_values) + row * DV, DV);
  sums.store(mean_sums + ((part * q_view.shape[0] * grid_y() + kv_row) * means + first) * (D + DV), keys);
}
$end

// Block (x, y, z): block x of kv head y of row z of the batch: dk and dv of the sums.
KERNEL(SMALL, 1) finish(${parameters('finish')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tokens = static_cast<int>(dk_view.shape[1]), size = static_cast<int>(block_size), first = static_cast<int>(block_x()) * size;
  const int count = tokens - first < size ? tokens - first : size;
  constexpr int ROW = D + DV;
  BlockParts own{0, 0};
  if (has_blocks) own = reinterpret_cast<const BlockParts*>(block_parts)[kv_row * grid_x() + block_x()];
$if gated
  __shared__ float of_mean[ROW];  // what each key takes of the gradient of its mean
#pragma unroll 1
  for (int d = thread_x(); d < ROW; d += SMALL) {
    float sum = 0;
    if (block_x() < means) {
#pragma unroll 4
      for (int64_t part = 0; part < mean_parts; ++part) sum += mean_sums[((part * dk_view.shape[0] * grid_y() + kv_row) * means + block_x()) * ROW + d];
    }
    of_mean[d] = sum / static_cast<float>(block_size);
  }
  sync_block();
$end
#pragma unroll 1
  for (int i = thread_x(); i < count * (ROW / 2); i += SMALL) {
    const int key = i / (ROW / 2), d = i % (ROW / 2) * 2;
    float x[2] = {0, 0};
    const auto add = [&](const float* from) { x[0] += from[0], x[1] += from[1]; };
#pragma unroll 4
    for (int part = own.first; part < own.first + own.count; ++part)
      add(block_sums + ((kv_row * parts + part) * tiles_a_block + key / KEYS) * (KEYS * ROW) + key % KEYS * ROW + d);
$if gated
    if (has_window) add(window_sums + (kv_row * window_tiles * KEYS + first + key) * ROW + d);
    add(of_mean + d);
$end
    const bool of_key = d < D;
    Element* const to = of_key ? token_row<Element>(dk_view, block_z(), first + key, block_y()) + d
                               : token_row<Element>(dv_view, block_z(), first + key, block_y()) + d - D;
    const float factor = of_key ? softmax_scale : 1;
    to[0] = from_float<Element>(x[0] * factor), to[1] = from_float<Element>(x[1] * factor);
  }
}
