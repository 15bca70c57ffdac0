// The first lines of mla_decode's `decode` where it serves mla_attention: queries in latent features, which a launch before made, and no lists.
  const View q_latent_view = slot_view(q_latent, sequence_count, query_tokens, all_heads, all_heads, R);
  const View rope_rows = head_view(q_rope_view.data, sequence_count, query_tokens, all_heads, ROPE, q_rope_view.strides[0], q_rope_view.strides[1], q_rope_view.strides[q_rope_view.rank - 2]);
  const View indices_view = no_view();
  wait_for_previous_launch();
