// GPU vocabulary: the entries of the gradient of native sparse attention's keys, through lists of the tokens that select a block: a long list goes in
// parts, whose sums `finish` adds up in order. Part of a template, which has defined before: Element, D, DV (multiples of 16), SMALL and KEYS, 64.
#pragma once
#include "native_sparse_attention/token_lists.h"
#include "native_sparse_attention/token_row.h"

// The lists of row z of the batch and kv head y.
#define TOKEN_LISTS \
  const TokenLists lists{block_bits, list_counts, list_tokens, reinterpret_cast<ListPart*>(list_parts), \
                         reinterpret_cast<BlockParts*>(block_parts), static_cast<int>(tokens), static_cast<int>(blocks), \
                         static_cast<int>(${sliced ? 'slice_words' : 'block_words'}), static_cast<int>(listed), static_cast<int>(parts), static_cast<int>(part_tokens), \
                         static_cast<int>(block_size)${sliced ? ', static_cast<int>(step * slice_words) * 32' : ''}${packed ? ', cum_seqlens, sequences' : ''}}; \
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
  const int block = ${sliced ? 'lists.first_block + ' : ''}static_cast<int>(block_x()) * (SMALL / WARP) + warp();
  if (block < lists.blocks) lists.count_tokens(kv_row, block);
}
KERNEL(SMALL, 1) list_tokens_of(${parameters('list_tokens_of')}) {
  TOKEN_LISTS;
  const int block = ${sliced ? 'lists.first_block + ' : ''}static_cast<int>(block_x()) * (SMALL / WARP) + warp();
  if (block < lists.blocks) lists.list_block(kv_row, block);
}

// Block (x, y, z): block x of kv head y of row z of the batch: dk and dv of the sums.
KERNEL(SMALL, 1) finish(${parameters('finish')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, true, dk_view.shape[1]);
  if (!block.is_there(block_size)) return;
  const int64_t mean = block.of.first_mean(block_size) + block.number;
  const int tokens = static_cast<int>(block.of.first + block.of.length), size = static_cast<int>(block_size);
  const int first = static_cast<int>(block.of.first + block.number * block_size);
$else
  const int tokens = static_cast<int>(dk_view.shape[1]), size = static_cast<int>(block_size), first = static_cast<int>(block_x()) * size;
$end
  const int count = tokens - first < size ? tokens - first : size;
  constexpr int ROW = D + DV;
  BlockParts own{0, 0};
  if (has_blocks) own = reinterpret_cast<const BlockParts*>(block_parts)[kv_row * grid_x() + block_x()];
$if gated
  __shared__ float of_mean[ROW];  // what each key takes of the gradient of its mean
#pragma unroll 1
  for (int d = thread_x(); d < ROW; d += SMALL) {
    float sum = 0;
    if (${packed ? 'means > 0 && block.is_whole(block_size)' : 'block_x() < means'}) {
#pragma unroll 4
      for (int64_t part = 0; part < mean_parts; ++part) sum += mean_sums[((part * dk_view.shape[0] * grid_y() + kv_row) * means + ${packed ? 'mean' : 'block_x()'}) * ROW + d];
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
    if (has_window${packed ? ' && !block.of_none' : ''}) add(window_sums + (kv_row * window_tiles * KEYS + ${packed ? 'block.first_in_parts(KEYS) + first - block.of.first' : 'first'} + key) * ROW + d);
    add(of_mean + d);
$end
    const bool of_key = d < D;
    Element* const to = of_key ? token_row<Element>(dk_view, block_z(), first + key, block_y()) + d
                               : token_row<Element>(dv_view, block_z(), first + key, block_y()) + d - D;
    const float factor = of_key ? softmax_scale : 1;
    to[0] = from_float<Element>(x[0] * factor), to[1] = from_float<Element>(x[1] * factor);
  }
}
