// Launches of Hopper's backward attention for a dense mask or bias: bits of the mask, rows that tile copies take, and the gradient of the bias.
// A part of backward.sm90.cu and of backward_wide.sm90.cu, whose constants it uses.
#pragma once

$if masked
// The mask's bits.
KERNEL(256, 6) pack_mask(${parameters('pack_mask')}) {
  __shared__ uint32_t rows[MaskPacker<BLOCK_M>::BYTES / 4];
  constexpr int64_t FAR = int64_t{1} << 40;
  const auto within = [&](int64_t x) { return x > FAR ? FAR : x < -FAR ? -FAR : x; };
  const int64_t ahead = within(offset_given ? offset : attention_mask_view.shape[3] - attention_mask_view.shape[2]);
  const int64_t farthest = BOUNDED ? FAR : causal ? ahead : window_right >= 0 ? ahead + within(window_right) : 2 * FAR;  // BOUNDED: rows have offsets of their own
  const int64_t nearest = BOUNDED || window_left < 0 ? -2 * FAR : ahead - within(window_left);
  MaskPacker<BLOCK_M>{attention_mask_view, reinterpret_cast<uint32_t*>(mask_bits), tiles_seen, mask_blocks, items, farthest, nearest}.run(reinterpret_cast<uint8_t*>(rows));
}
$end
$if biased != 'none'
// A bias whose rows tile copies do not take, in rows that they do.
KERNEL(256, 1) align_bias(${parameters('align_bias')}) {
  copy_rows<256, Bias>(aligned_rows(bias_view, sizeof(Bias) == 2 ? static_cast<void*>(bias_rows_16) : static_cast<void*>(bias_rows_32)), bias_view);
}
$end
$if bias_gradient == 'stored'
// The bias's gradient is 0 where blocks of keys skip turns.
KERNEL(256, 1) clear_bias(${parameters('clear_bias')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr};
  const RowSpace space{q.heads, space_rows, BLOCK_M, PACKED};
#pragma unroll 1
  for (int64_t i = block_x(); i < broken_blocks; i += grid_x()) {
    Block block;
    const int numbered = static_cast<int>(i / key_blocks), number = static_cast<int>(i - numbered * key_blocks);
    if (!block.find(sequences, {causal, window_left, window_right}, space, static_cast<int>(k.heads), numbered, number)) continue;
    if constexpr (SEGMENTED) SegmentIds(q_segment_ids_view, kv_segment_ids_view, q.tokens, k.tokens).narrow<!ORDERED && !OWNS_QUERIES>(block);
    if constexpr (NARROWS) narrow_steps(block, attention_mask_view, tiles_seen, static_cast<int>(q.heads / k.heads), key_blocks);
    const auto clear = [&](const View& rows) {
#pragma unroll 1
      for (int head = 0; head < q.heads / k.heads; ++head)
        clear_bias_rows<256, Element>(rows, block.sequence.batch, block.first_head + head, block.first_key, block.keys < BLOCK_N ? block.keys : BLOCK_N,
                                      block.first_step * BLOCK_M, block.end_step * BLOCK_M);
    };
    if (stores_apart)
      clear(aligned_rows(dbias_view, dbias_rows_16));
    else
      clear(dbias_view);
  }
}
// The gradient of a bias whose rows tile copies do not take.
KERNEL(256, 1) store_bias(${parameters('store_bias')}) { copy_rows<256, Bias>(dbias_view, aligned_rows(dbias_view, dbias_rows_16)); }
$end
$if bias_gradient == 'summed' or bias_gradient == 'in_turn'
// The bias's gradient: its sums before, and after.
KERNEL(256, 1) clear_bias(${parameters('clear_bias')}) { clear_bias_sums<256>(dbias_sums, dbias_count); }
KERNEL(256, 1) finish_bias(${parameters('finish_bias')}) {
  __shared__ float rows[BLOCK_M * BiasStorer<BLOCK_M>::PITCH];
  BiasStorer<BLOCK_M>{dbias_view, bias_type, dbias_sums, mask_blocks, items}.run(rows);
}
$end
