// The first lines of flash_attention's `attend` where it serves mla_attention: its arguments, for the heads of this turn. Launches before made queries, keys
// and values of them, in slots; options that mla_attention has not are off.
  const int64_t group_head = step * head_slots, group_heads = all_heads - group_head < head_slots ? all_heads - group_head : head_slots;
  const View group_out = heads_from<Element>(out_view, group_head, group_heads);
  const View v_view = slot_view(made_v, sequence_count, key_tokens, group_heads, head_slots, DV);
$if hopper  // with a place for lse in any case: of a view whose rank is not known the compiler makes an array in memory
  const View lse_view = logs_view((lse ? lse : unread_lse) + group_head * lse_head, sequence_count, group_heads, query_tokens, lse_batch, lse_head);
  const View q_view = heads_from<Element>(q_nope_view, group_head, group_heads), rope_queries = heads_from<Element>(q_rope_view, group_head, group_heads);
  const View k_view = slot_view(made_k, sequence_count, key_tokens, group_heads, head_slots, NOPE);
  const View rope_keys = head_view(k_rope, sequence_count, key_tokens, 1, ROPE, rope_outer, rope_inner, 0);
  const TensorMap &q_map = q_nope_map, &k_map = made_k_map, &v_map = made_v_map;
  const int64_t group_tiles = row_blocks * group_heads * sequence_count;
$else
  const View lse_view = lse_view_of(lse ? lse + group_head * lse_head : nullptr, sequence_count, group_heads, query_tokens, lse_batch, lse_head);
  const View q_view = slot_view(joined_q, sequence_count, query_tokens, group_heads, head_slots, D);
  const View k_view = slot_view(made_k, sequence_count, key_tokens, group_heads, head_slots, D);
  const View bias_view = no_view(), attention_mask_view = no_view();
  constexpr int64_t bias_type = 0, dropout_seed = 0;
$end
  constexpr float drop_threshold = 0;
  const View softmax_aux_view = no_view();
  const int32_t *const cum_seqlens_q = nullptr, *const cum_seqlens_k = nullptr, *const query_seq_lengths = nullptr, *const key_value_seq_lengths = nullptr;
  constexpr int64_t sinks_type = 0;
