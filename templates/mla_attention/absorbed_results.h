// Where mla_decode's launches leave their results when they serve mla_attention: outputs in latent features, for the launch after.
  const View out_view = slot_view(latent_out, sequence_count, query_tokens, all_heads, all_heads, R);
  const View lse_view = lse_view_of(lse, sequence_count, all_heads, query_tokens, lse_batch, lse_head);
