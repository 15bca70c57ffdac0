// CPU vocabulary of mla_attention, absorbed: the entry of attention. At the end of the template.
#pragma once

// Rows of a tile, as parts.
static void store_parts(const Chunk& c, float* partial, int64_t heads, int64_t parts, int64_t part) {
  const auto place = [&](int64_t r) {
    const int64_t query = c.sequence.index * c.sequence.queries + c.row[r].token;
    return partial + ((query * heads + c.row[r].head) * parts + part) * PART;
  };
  for (int64_t r = 0; r < c.rows; ++r) place(r)[0] = c.maxima[r], place(r)[1] = c.denominators[r];
  for (int64_t r = 0; r < c.rows; r += LANES) {
    const float* from = c.outputs + r / BLOCK_M * OUTPUT_ROWS * BLOCK_M + r % BLOCK_M;
    for (int64_t d = 0; d < R; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) block[lane] = load_floats(from + (d + lane) * BLOCK_M);
      transpose(block);
      for (int lane = 0; lane < LANES && r + lane < c.rows; ++lane) store_some(place(r + lane) + 2 + d, block[lane], R - d);
    }
  }
}

// Item (x, y, z): part x of the keys of sequence z for the y-th chunk of `tiles` row tiles; rows are tokens times heads.
static void attend(${parameters('attend')}, const Group& group) {
  const View none{nullptr, -1, {}, {}};
  const int64_t heads = w_kc_view.shape[1], length = context_lens ? context_lens[group.z] : tokens;
  const ScoreRules rules{none, none, q_segment_ids_view, kv_segment_ids_view, 0, heads, softmax_scale, logits_soft_cap, 0, 0};
  const Sequence sequence{group.z, group.z, 0, 0, queries, length, offset_given ? offset : length - queries, false, 0};
  const Visibility visibility{causal || context_lens, window_left, context_lens ? -1 : window_right};
  const int64_t chunk_rows = tiles * BLOCK_M, first_row = group.y * chunk_rows, rows = smaller(chunk_rows, queries * heads - first_row);
  Chunk c{rules, sequence, rows, (rows + BLOCK_M - 1) / BLOCK_M, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, {}};
  c.keys.rows = c.lay_out(static_cast<float*>(group.shared), tiles);
  fill_rows(c.row, c.tiles * BLOCK_M, first_row, rows, 0, heads, sequence, visibility);
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    load_features(c, r, 0, R, [&](const Row& row) { return absorbed_queries + ((group.z * queries + row.token) * heads + row.head) * R; });
    load_features(c, r, R, ROPE, [&](const Row& row) { return row_of<const Element>(q_rope_view, group.z, row.token, row.head); });
  }
  for (int64_t r = 0; r < c.tiles * BLOCK_M; ++r) c.maxima[r] = -INFINITE, c.denominators[r] = 0;
  __builtin_memset(c.outputs, 0, c.tiles * OUTPUT_ROWS * BLOCK_M * sizeof(float));
  const LatentKeys keys{{cache ? cache : kv_latent, cache ? cache + R : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size},
                        block_tables ? block_tables + group.z * table_row : nullptr, nullptr, group.z};
  KeyRange some = keys_of_rows(c.row, rows);
  if (some.first >= some.end) some = {0, 0};
  const int64_t share = (some.end - some.first + parts * 16 - 1) / (parts * 16) * 16, begin = smaller(some.first + group.x * share, some.end);
  const int64_t end = smaller(begin + share, some.end);
  for (int64_t first = begin; first < end; first += BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, end - first);
    c.keys.load(keys, first, count);
    for (int64_t tile = 0; tile < c.tiles; ++tile) attend_block(c, tile, first, count);
  }
  store_parts(c, partial, heads, parts, group.x);
}
