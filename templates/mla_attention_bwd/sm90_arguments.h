// What mla_attention_bwd puts at the head of flash_attention_bwd's launches on Hopper: their arguments, for the heads of this turn. Launches before made queries, keys
// and values of them, in slots; options that mla_attention has not are off.
#pragma once
#include "mla_attention_bwd/turn_views.h"

#define TURN_ARGUMENTS \
  const TurnHeads turn_heads(step, head_slots, all_heads); \
  const View q_view = slot_view(joined_q, sequence_count, query_tokens, turn_heads.count, head_slots, D), k_view = slot_view(made_k, sequence_count, key_tokens, turn_heads.count, head_slots, D), \
             v_view = slot_view(made_v, sequence_count, key_tokens, turn_heads.count, head_slots, DV), \
             dout_view = head_view(dout + turn_heads.first * dout_head, sequence_count, query_tokens, turn_heads.count, DV, dout_batch, dout_token, dout_head), \
             dq_view = slot_view(dq, sequence_count, query_tokens, turn_heads.count, head_slots, D), dk_view = slot_view(dk, sequence_count, key_tokens, turn_heads.count, head_slots, D), \
             dv_view = slot_view(dv, sequence_count, key_tokens, turn_heads.count, head_slots, DV); \
  const View bias_view = no_view(), attention_mask_view = no_view(); \
  const int32_t *const cum_seqlens_q = nullptr, *const cum_seqlens_k = nullptr, *const query_seq_lengths = nullptr, *const key_value_seq_lengths = nullptr, *const mask_bits = nullptr, \
                *const tiles_seen = nullptr; \
  float* const dbias_sums = nullptr; \
  constexpr int64_t bias_type = 0, dropout_seed = 0, mask_blocks = 0, batches_together = 1; \
  constexpr float drop_threshold = 0, kept_part = 1;
