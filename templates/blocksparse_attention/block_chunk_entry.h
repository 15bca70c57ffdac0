// CPU vocabulary: the entry of attention behind a mask of blocks, by chunks of query rows; beside flash_attention/attention_chunk_entry.h, whose top says
// what a template has defined before.
#pragma once
#include "blocksparse_attention/key_blocks.h"
$if packed
#include "blocksparse_attention/packed_blocks.h"
$end

// All keys that the blocks leave to the chunk's rows, BLOCK_N at a time at most: load(first, count), then attend(tile, first, count) for every
// tile. The keys and values of what follows are fetched meanwhile.
template <class Load, class Attend> static inline void attend_blocks(const Chunk& c, const KeyBlocks& blocks, Load load, Attend attend) {
  const KeyRange some = keys_of_rows(c.row, c.rows);
  for (KeyRange run = blocks.next(some.first, some.end); run.first < run.end;) {
    const int64_t first = run.first, count = smaller(BLOCK_N, run.end - first);
    run.first += count;
    if (run.first == run.end) run = blocks.next(run.end, some.end);
    const int64_t ahead = smaller(BLOCK_N, run.end - run.first);
    load(first, count);
    for (int64_t tile = 0; tile < c.tiles; ++tile) {
      const int64_t from = run.first + ahead * tile / c.tiles, to = run.first + ahead * (tile + 1) / c.tiles;
      prefetch(c.k, c.sequence, c.kv_head, from, to, D);
      prefetch(c.v, c.sequence, c.kv_head, from, to, DV);
      attend(tile, first, count);
    }
  }
}

// Item (x, y, z): the x-th chunk of `tiles` row tiles, `parts` a block of queries, of row z of the batch (packed: of all sequences). A row is a query token of one of
// `together` heads that follow one another and share the mask: those of the y-th such group. The last chunks are taken first.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                         logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)};
$if packed
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  Sequence sequence;
  int64_t block = group.x / parts, blocks_of_sequence;
  if (!sequences.find(block, block_q, 1, sequence, blocks_of_sequence)) return;
  sequence = within_mask(sequence, block_mask_view, block_q, block_k);
  const int64_t chunk_rows = tiles * BLOCK_M, query_block = blocks_of_sequence - 1 - block, item = query_block * parts + group.x % parts;
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths,
                            key_value_seq_lengths};
  const Sequence sequence = sequences[group.z];
  const int64_t chunk_rows = tiles * BLOCK_M, item = group.grid_x - 1 - group.x, query_block = item / parts;
$end
  const int64_t first_row = query_block * block_q * together + item % parts * chunk_rows;
  const int64_t rows = smaller(chunk_rows, smaller((query_block + 1) * block_q, sequence.queries) * together - first_row);
  if (rows <= 0) return;
  Chunk c{q, k, v, rules, sequence, group.y * together / (q.heads / k.heads), rows, (rows + BLOCK_M - 1) / BLOCK_M};
  lay_out(c, static_cast<float*>(group.shared), tiles, chunk_rows);
  fill_rows(c.row, c.tiles * BLOCK_M, first_row, rows, group.y, together, sequence, Visibility{causal, window_left, window_right});
  for (int64_t r = 0; r < c.tiles * BLOCK_M; ++r) c.row[r].keys = within_chunk(c.row[r].keys, sequence, c.row[r].token, chunk_size);
  load_queries(c);
  start_rows(softmax_aux_view, sinks_type, q.heads, sequence, c.row, c.tiles * BLOCK_M, c.maxima, c.denominators);
  __builtin_memset(c.outputs, 0, c.tiles * OUTPUT_ROWS * BLOCK_M * sizeof(float));
  start_products(c);
  const auto load = [&](int64_t first, int64_t count) {
    load_keys(c, first, count);
    load_values(c, first, count);
  };
  const KeyBlocks blocks(block_mask_view, sequence.batch, group.y * together, ${packed ? 'row_of_mask(block_mask_view, query_block)' : 'query_block'}, block_k);
  attend_blocks(c, blocks, load, [&](int64_t tile, int64_t first, int64_t count) { attend_block(c, tile, first, count); });
  end_products();
  store_outputs<BLOCK_M>(out, sequence, c.row, rows, c.outputs, DV, OUTPUT_ROWS, c.denominators, rules.drop_threshold);
  store_lse(lse_view, sequence, c.row, c.rows, c.maxima, c.denominators);
}
