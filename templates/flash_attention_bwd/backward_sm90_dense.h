// Launches of Hopper's backward attention for a dense mask, and for a bias whose gradient is summed. A part of backward.sm90.cu and of
// backward_wide.sm90.cu, whose constants it uses.
#pragma once

$if masked
// The mask's bits.
KERNEL(256, 1) pack_mask(${parameters('pack_mask')}) {
  __shared__ uint32_t bytes[BLOCK_M * MaskPacker<BLOCK_M>::PITCH / 4];
  MaskPacker<BLOCK_M>{attention_mask_view, reinterpret_cast<uint32_t*>(mask_bits), tiles_seen, mask_blocks, items}.run(reinterpret_cast<uint8_t*>(bytes));
}
$end
$if bias_gradient == 'summed'
// The bias's gradient: its sums before, and after.
KERNEL(256, 1) clear_bias(${parameters('clear_bias')}) { clear_bias_sums<256>(dbias_sums, dbias_count); }
KERNEL(256, 1) finish_bias(${parameters('finish_bias')}) {
  __shared__ float rows[BLOCK_M * BiasStorer<BLOCK_M>::PITCH];
  BiasStorer<BLOCK_M>{dbias_view, bias_type, dbias_sums, mask_blocks, items}.run(rows);
}
$end
