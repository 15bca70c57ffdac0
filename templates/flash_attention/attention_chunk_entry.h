// CPU vocabulary: the entry of attention by chunks of query rows. At the end of a template, which has defined before: Element, D, DV, BLOCK_M,
// BLOCK_N; OUTPUT_ROWS, features that outputs have room for; Chunk and lay_out, load_queries, load_keys, load_values, attend_block; and
// start_products and end_products, between which the products are.
#pragma once

// Item (x, y, z): the x-th chunk of `tiles` row tiles (packed: of all sequences; batched: of row z of the batch), kv head y.
// The chunks of a sequence are taken from the last to the first: with a causal mask the longest go first.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                         logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const int64_t chunk_rows = tiles * BLOCK_M, token_rows = q.heads / k.heads;
  Sequence sequence = sequences[cum_seqlens_q ? 0 : group.z];
  int64_t item = group.x, items = group.grid_x;
  if (cum_seqlens_q && !sequences.find(item, chunk_rows, token_rows, sequence, items)) return;
  const int64_t first_row = (items - 1 - item) * chunk_rows, rows = smaller(chunk_rows, sequence.queries * token_rows - first_row);
  Chunk c{q, k, v, rules, sequence, group.y, rows, (rows + BLOCK_M - 1) / BLOCK_M};
  lay_out(c, static_cast<float*>(group.shared), tiles, chunk_rows);
  fill_rows(c.row, c.tiles * BLOCK_M, first_row, rows, group.y, token_rows, sequence, Visibility{causal, window_left, window_right});
  load_queries(c);
  start_rows(softmax_aux_view, sinks_type, q.heads, sequence, c.row, c.tiles * BLOCK_M, c.maxima, c.denominators);
  __builtin_memset(c.outputs, 0, c.tiles * OUTPUT_ROWS * BLOCK_M * sizeof(float));
  start_products(c);
  const auto load = [&](int64_t first, int64_t count) {
    load_keys(c, first, count);
    load_values(c, first, count);
  };
  attend_keys<BLOCK_N, D, DV>(c, load, [&](int64_t tile, int64_t first, int64_t count) { attend_block(c, tile, first, count); });
  end_products();
  store_outputs<BLOCK_M>(out, sequence, c.row, rows, c.outputs, DV, OUTPUT_ROWS, c.denominators, rules.drop_threshold);
  store_lse(lse_view, sequence, c.row, c.rows, c.maxima, c.denominators);
}
