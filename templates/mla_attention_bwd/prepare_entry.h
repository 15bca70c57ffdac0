// The launch of mla_attention_bwd before flash_attention_bwd's: log-sum-exps and deltas of the turn's rows. An end of flash_attention_bwd's backward.mma.gpu.cu, whose
// constants it uses.
#pragma once

// Block (x, y, z): BLOCK_M query rows x of the turn's head y of row z of the batch. Clears the sums of dq, too.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  if (block_y() >= turn.count) return;
  const Heads<const Element> outs(heads_from<Element>(out_view, turn.first, turn.count)),
      douts(head_view(dout + turn.first * dout_head, sequence_count, query_tokens, turn.count, DV, dout_batch, dout_token, dout_head));
  const Sequence sequence = Sequences{nullptr, nullptr, sequence_count, query_tokens, 0, true, 0}[block_z()];
  const int64_t first = block_x() * int64_t{BLOCK_M}, at = (block_z() * turn.count + block_y()) * space_rows + first;
  constexpr int LANES = DV <= 64 ? 8 : DV <= 128 ? 16 : 32;
  prepare_rows<PREPARE_THREADS, LANES, 8>(outs, douts, logs_from(lse_view, turn.first, turn.count), sequence, block_y(), first, BLOCK_M, DV, row_lse + at, row_delta + at);
#pragma unroll 1
  for (int64_t copy = 0; copy < copies; ++copy)
#pragma unroll 1
    for (int i = thread_x() * 4; i < BLOCK_M * D16; i += PREPARE_THREADS * 4) store_pack(dq_sums + (copy * total_rows + at) * D16 + i, Pack<float, 4>{});
}
