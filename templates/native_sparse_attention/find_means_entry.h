// CPU vocabulary: the entry that finds the means of keys and values over blocks. Part of a template, which has defined Element before.
#pragma once

// Item (x, y, z): whole block x of kv head y of row z of the batch; packed, of all sequences.
static void find_means(${parameters('find_means')}, const Group& group) {
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t at = (group.z * group.grid_y + group.y) * group.grid_x + group.x;
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, group.x, block_size, false, k.tokens);
  if (!block.is_whole(block_size)) return;
  const int64_t first = block.of.first + block.number * block_size;
  const int64_t head_dim = k_view.shape[3], value_dim = v_view.shape[3];
  mean_of_rows(k.row(group.z, first, group.y), k.token_stride, block_size, head_dim, key_means + at * head_dim);
  if (is_given(g_cmp_view))
    mean_of_rows(v.row(group.z, first, group.y), v.token_stride, block_size, value_dim, value_means + at * value_dim);
}
