// CPU vocabulary of mla_attention, expanded: the entry. At the end of the template.
#pragma once

// Item (x, y, z): the x-th chunk of `tiles` row tiles of head y of row z of the batch, the last chunk first: with a causal mask it takes longest.
static void attend(${parameters('attend')}, const Group& group) {
  const View none{nullptr, -1, {}, {}};
  const Heads<const Element> q(q_nope_view), q_rope(q_rope_view);
  const ScoreRules rules{none, none, q_segment_ids_view, kv_segment_ids_view, 0, q.heads, softmax_scale, logits_soft_cap, 0, 0};
  const Sequence sequence{group.z, group.z, 0, 0, queries, tokens, offset_given ? offset : tokens - queries, false, 0};
  const int64_t chunk_rows = tiles * BLOCK_M, first_row = (group.grid_x - 1 - group.x) * chunk_rows, rows = smaller(chunk_rows, queries - first_row);
  Chunk c{rules, sequence, rows, (rows + BLOCK_M - 1) / BLOCK_M, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, {}};
  c.keys.lay_out(c.lay_out(static_cast<float*>(group.shared), tiles));
  fill_rows(c.row, c.tiles * BLOCK_M, first_row, rows, group.y, 1, sequence, Visibility{causal, window_left, window_right});
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    load_features(c, r, 0, OWN, [&](const Row& row) { return q.row(group.z, row.token, row.head); });
    load_features(c, r, OWN, ROPE, [&](const Row& row) { return q_rope.row(group.z, row.token, row.head); });
  }
  for (int64_t r = 0; r < c.tiles * BLOCK_M; ++r) c.maxima[r] = -INFINITE, c.denominators[r] = 0;
  __builtin_memset(c.outputs, 0, c.tiles * OUTPUT_ROWS * BLOCK_M * sizeof(float));
  c.keys.load_weights(w_kc_view, w_vc_view, group.y);
  const LatentKeys keys{{kv_latent, k_rope, latent_outer, latent_inner, rope_outer, rope_inner, 1}, nullptr, nullptr, group.z};
  const KeyRange some = keys_of_rows(c.row, rows);
  for (int64_t first = some.first / BLOCK_N * BLOCK_N; first < some.end; first += BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, some.end - first);
    c.keys.load(keys, first, count);
    for (int64_t tile = 0; tile < c.tiles; ++tile) attend_block(c, tile, first, count);
  }
  store_outputs<BLOCK_M>(Heads<Element>(out_view), sequence, c.row, rows, c.outputs, VALUE, OUTPUT_ROWS, c.denominators, 0);
  store_lse(lse_view, sequence, c.row, rows, c.maxima, c.denominators);
}
