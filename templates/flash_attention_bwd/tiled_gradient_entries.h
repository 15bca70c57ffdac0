// CPU vocabulary of attention's gradients by tiles: the launches. At the end of a template, which says what they work on: Element, D, DV, BLOCK_M,
// BLOCK_N, WIDTH, GRAIN, D_COLUMNS, D_FEATURES and DV_FEATURES, Call, KeyTile and Scratch; and how: load_block, load_rows, multiply_scores, pass_tile.
#pragma once
#include "flash_attention_bwd/tiled_gradient.h"
$if by_blocks
#include "blocksparse_attention/touched_rows.h"
$end

constexpr int64_t TOKENS = 64;  // query tokens an item of the small launches

$if by_blocks
// The panels of blocks [run.first, run.end), of those from key `first` on, that some of the rows see; false: there are none.
static bool panels_seen(const Row* row, int64_t rows, KeyTile& t, int64_t first, const KeyRange& run, bool& every) {
  if (!panels_seen(row, rows, t, run.first, run.end - run.first, every)) return false;
  const int64_t before = run.first - first;
  t.first = first, t.begin += before, t.end += before, t.count += before;
  return true;
}

// Which blocks of the mask a block of queries sees.
static KeyBlocks key_blocks(const Call& call, const Sequence& s, int64_t head, int64_t token) {
  return KeyBlocks(*call.visibility.blocks, s.${packed ? 'index' : 'batch'}, head, token / call.visibility.block_q, call.visibility.block_k);
}

// From `token` on, the first of a block of queries that sees blocks of keys [first, end); past all that see: there is none.
static int64_t seeing_block(const Call& call, const Sequence& s, int64_t head, int64_t token, int64_t first, int64_t end) {
  while (token < s.seeing() && key_blocks(call, s, head, token).next(first, end).first >= end) token += call.visibility.block_q;
  return token;
}

// All rows of a group of `together` heads past keys of some blocks of the mask, or of a part of one.
static void pass_rows(const Call& call, const Sequence& s, int64_t head_group, int64_t together, int64_t first, int64_t count, const RowPart& part,
                      Scratch& scratch) {
  KeyTile t{scratch.row, 0, s.batch, s.index, s.keys, 0, 0, 0, scratch.weights, scratch.slopes, nullptr, scratch.base, scratch.delta};
  const int64_t block = call.visibility.block_q, head = head_group * together;
  RowsAhead<Element> ahead{call.q, call.dout, part.dq, s.batch, s.first_query, head, together, 0, 0};
  scratch.ask_between(ahead);
  for (int64_t token = seeing_block(call, s, head, 0, first, first + count), next; token < s.seeing(); token = next) {
    next = seeing_block(call, s, head, token + block, first, first + count);
    const KeyBlocks blocks = key_blocks(call, s, head, token);
    const int64_t end = smaller(token + block, s.seeing()) * together;
    for (int64_t row = token * together; row < end; row += BLOCK_M) {
      const int64_t rows = smaller(BLOCK_M, end - row);
      ahead.row = row + rows < end ? row + rows : next * together;
      ahead.end = smaller(ahead.row + BLOCK_M, row + rows < end ? end : smaller(next + block, s.seeing()) * together);
      t.rows = (rows + GRAIN - 1) / GRAIN * GRAIN;
      fill_rows(scratch.row, t.rows, row, rows, head_group, together, s, call.visibility);
      for (int64_t r = 0; r < t.rows; ++r) scratch.row[r].keys = within_chunk(scratch.row[r].keys, s, scratch.row[r].token, call.visibility.chunk);
      bool loaded = false, every;
      for (KeyRange run = blocks.next(first, first + count); run.first < run.end; run = blocks.next(run.end, first + count)) {
        if (!panels_seen(scratch.row, rows, t, first, run, every)) continue;
        if (!loaded) load_rows(call, s, rows, t.rows, scratch);
        loaded = true;
        part.touch<D_COLUMNS>(token / block, token * together, smaller(token + block, s.queries) * together);
        pass_tile(call, t, scratch, every && t.rows == rows, part.dq + row * D_COLUMNS);  // rows after these are of the next block of queries
      }
    }
  }
}
$else
// All rows of the sequence past one block of keys; dq [row][D_COLUMNS].
static void pass_rows(const Call& call, const Sequence& s, int64_t kv_head, int64_t token_rows, int64_t first, int64_t count, float* dq,
                      Scratch& scratch) {
  const int64_t all_rows = s.seeing() * token_rows;
  KeyTile t{scratch.row, 0, s.batch, s.index, s.keys, 0, 0, 0, scratch.weights, scratch.slopes, nullptr, scratch.base, scratch.delta};
  for (int64_t row = 0; row < all_rows; row += BLOCK_M) {
    const int64_t rows = smaller(BLOCK_M, all_rows - row);
    bool every;
    t.rows = (rows + GRAIN - 1) / GRAIN * GRAIN;
    fill_rows(scratch.row, t.rows, row, rows, kv_head, token_rows, s, call.visibility);
    if (!panels_seen(scratch.row, rows, t, first, count, every)) continue;
    load_rows(call, s, rows, t.rows, scratch);
    pass_tile(call, t, scratch, every, dq + row * D_COLUMNS);
  }
}
$end

// Item (x, y, z): block x of query tokens of row z of the batch (packed: of all), query head y.
static void sum_rows(${parameters('sum_rows')}, const Group& group) {
  const RowTable rows{lse_view, delta, Hq, query_tokens};
  fill_delta(rows, Heads<const Element>(out_view), Heads<const Element>(dout_view), group.z, group.y, group.x * TOKENS,
             smaller((group.x + 1) * TOKENS, query_tokens), DV);
}

// Item x: element x of dsoftmax_aux.
static void differentiate_sinks(${parameters('differentiate_sinks')}, const Group& group) {
  const RowTable rows{lse_view, delta, Hq, query_tokens};
  store_sink_gradient(rows, softmax_aux_view, dsoftmax_aux_view, sinks_type, group.x, batches, query_tokens);
}

$if by_blocks
// Item (x, y, z): every splits-th piece of the keys from the x-th on, of kv head y and row z of the batch (packed: sequence z). A piece is some whole
// blocks of the mask, or a part of one.
static void differentiate(${parameters('differentiate')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view);
  const Heads<Element> dk(dk_view), dv(dv_view);
  const Call call{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), RowTable{lse_view, delta, q.heads, q.tokens},
                  ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                             logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)},
                  BlockVisibility{causal, window_left, window_right, chunk_size, &block_mask_view, block_q, block_k}};
$if packed
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  const Sequence all = sequences[group.z], s = cut_to_mask(all, block_mask_view, block_q, block_k);
  const int64_t tokens = s.past_the_end ? k.tokens - s.first_key : all.keys;
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths, key_value_seq_lengths};
  const Sequence s = sequences[group.z];
$end
  const int64_t groups = q.heads / k.heads / together, pieces = (block_k + BLOCK_N - 1) / BLOCK_N;
  const int64_t blocks = blocks_a_piece * block_k, piece = (blocks / 16 + pieces - 1) / pieces * 16;
$if packed
  float* const dq = dq_parts + ((group.x * k.heads + group.y) * groups * part_rows + s.first_query * together + s.index * BLOCK_M) * D_COLUMNS;
$else
  float* const dq = dq_parts + ((group.x * sequence_count + s.batch) * k.heads + group.y) * groups * part_rows * D_COLUMNS;
$end
  const TouchedRows all_touched{dq_touched, group.grid_z, k.heads * groups, block_mask_view.shape[2]};
  int32_t* const touched = all_touched.of(group.x, group.z, group.y * groups);
  __builtin_memset(touched, 0, groups * all_touched.blocks * sizeof(int32_t));
  Scratch scratch(group.shared);
  for (int64_t number = group.x; number / pieces * blocks < ${packed ? 'tokens' : 'k.tokens'}; number += group.grid_x) {
    const int64_t block = number / pieces * blocks, first = block + number % pieces * piece;
    const int64_t count = smaller(smaller(piece, block + blocks - first), ${packed ? 'tokens' : 'k.tokens'} - first);
    if (count <= 0) continue;
    load_block(call, s, group.y, first, larger(smaller(count, s.keys - first), 0), scratch);
    __builtin_memset(scratch.dkeys_t, 0, BLOCK_N * D_FEATURES * sizeof(float));
    __builtin_memset(scratch.dvalues_t, 0, BLOCK_N * DV_FEATURES * sizeof(float));
    for (int64_t g = 0; ${packed ? 'first < s.keys && ' : ''}g < groups; ++g)
      pass_rows(call, s, group.y * groups + g, together, first, count, {dq + g * part_rows * D_COLUMNS, touched + g * all_touched.blocks}, scratch);
    store_keys<WIDTH>(dk, s, group.y, first, count, scratch.dkeys_t, D, D_FEATURES, softmax_scale);
    store_keys<WIDTH>(dv, s, group.y, first, count, scratch.dvalues_t, DV, DV_FEATURES, 1);
  }
}
$else
// Item (x, y, z): every splits-th block of keys from the x-th on, of kv head y and sequence z (batched: row of the batch).
static void differentiate(${parameters('differentiate')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view);
  const Heads<Element> dk(dk_view), dv(dv_view);
  const Call call{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), RowTable{lse_view, delta, q.heads, q.tokens},
                  ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                             logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)},
                  Visibility{causal, window_left, window_right}};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const Sequence s = sequences[group.z];
  const int64_t keys = !cum_seqlens_q ? k.tokens : s.past_the_end ? k.tokens - s.first_key : s.keys, token_rows = q.heads / k.heads;
  const int64_t first_row = cum_seqlens_q ? s.first_query * token_rows + s.index * BLOCK_M : 0;
  float* dq = dq_parts + (((group.x * batches + s.batch) * k.heads + group.y) * part_rows + first_row) * D_COLUMNS;
  __builtin_memset(dq, 0, s.queries * token_rows * D_COLUMNS * sizeof(float));
  Scratch scratch(group.shared);
  for (int64_t first = group.x * BLOCK_N; first < keys; first += group.grid_x * BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, keys - first);
    load_block(call, s, group.y, first, larger(smaller(count, s.keys - first), 0), scratch);
    __builtin_memset(scratch.dkeys_t, 0, BLOCK_N * D_FEATURES * sizeof(float));
    __builtin_memset(scratch.dvalues_t, 0, BLOCK_N * DV_FEATURES * sizeof(float));
    pass_rows(call, s, group.y, token_rows, first, count, dq, scratch);
    store_keys<WIDTH>(dk, s, group.y, first, count, scratch.dkeys_t, D, D_FEATURES, softmax_scale);
    store_keys<WIDTH>(dv, s, group.y, first, count, scratch.dvalues_t, DV, DV_FEATURES, 1);
  }
}
$end

// Item (x, y, z): block x of query tokens (packed: of all sequences; batched: of row z of the batch), kv head y: the parts of dq are added.
static void add_parts(${parameters('add_parts')}, const Group& group) {
$if by_blocks
  const int64_t Hkv = head_groups, batches = ${packed ? '1' : 'sequence_count'};  // heads that share rows
  const TouchedRows touched{dq_touched, sequence_count${packed ? ' + 1' : ''}, head_groups, mask_query_blocks};
$end
  const Heads<Element> dq(dq_view);
  const int64_t token_rows = Hkv > 0 ? dq.heads / Hkv : 1;
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, dq.tokens, 0, false, 0};
  Sequence s = sequences[cum_seqlens_q ? 0 : group.z];
  int64_t item = group.x, items = group.grid_x;
  if (cum_seqlens_q && !sequences.find(item, TOKENS, 1, s, items)) return;
  const int64_t first_row = cum_seqlens_q ? s.first_query * token_rows + s.index * BLOCK_M : 0;
  for (int64_t row = item * TOKENS * token_rows; row < smaller((item + 1) * TOKENS, s.queries) * token_rows; ++row) {
    const float* from = dq_parts + ((s.batch * Hkv + group.y) * part_rows + first_row + row) * D_COLUMNS;
    Element* to = dq.row(s.batch, s.first_query + row / token_rows, group.y * token_rows + row % token_rows);
$if by_blocks
    Floats sums[D_COLUMNS / LANES] = {};
    for (int64_t part = 0; part < splits; ++part) {
      if (!touched.holds(part, s.index, group.y, row / token_rows / block_q)) continue;
      for (int64_t i = 0; i < D_COLUMNS / LANES; ++i) sums[i] += load_floats(from + part * batches * Hkv * part_rows * D_COLUMNS + i * LANES);
    }
    for (int64_t d = 0; d < D; d += LANES) store_some(to + d, sums[d / LANES] * softmax_scale, D - d);
$else
    for (int64_t d = 0; d < D; d += LANES) {
      Floats sum = load_floats(from + d);
      for (int64_t part = 1; part < splits; ++part) sum += load_floats(from + part * batches * Hkv * part_rows * D_COLUMNS + d);
      store_some(to + d, sum * softmax_scale, D - d);
    }
$end
  }
}

$if not by_blocks
// Adds the gradients of the scores of one head's rows to scratch.by_score.
static void add_scores(const Call& call, const Sequence& s, int64_t head, int64_t token, int64_t rows, int64_t first, int64_t count,
                       Scratch& scratch) {
  KeyTile t{scratch.row, 0, s.batch, s.index, s.keys, 0, 0, 0, scratch.weights, scratch.slopes, scratch.by_score, scratch.base, scratch.delta};
  bool every;
  t.rows = (rows + GRAIN - 1) / GRAIN * GRAIN;
  fill_rows(scratch.row, t.rows, token, rows, head, 1, s, call.visibility);
  if (!panels_seen(scratch.row, rows, t, first, count, every)) return;
  load_block(call, s, head * call.k.heads / call.q.heads, first, smaller(count, s.keys - first), scratch);
  load_rows(call, s, rows, t.rows, scratch);
  multiply_scores(t, scratch);
  weigh_rows(t, call.rules);
}

static void store_bias_row(const View& dbias, int64_t type, int64_t to, const KeyTile& t, int64_t r, int64_t count) {
  for (int64_t j = 0; j < count; ++j) store_element(dbias.data, type, to + j, t.by_score[t.place(r, j)]);
}

// Item (x, y, z): block x of query tokens, head y and row z of dbias, summed over the heads and rows of the batch that share it.
static void differentiate_bias(${parameters('differentiate_bias')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view);
  const Call call{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), RowTable{lse_view, delta, q.heads, q.tokens},
                  ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, q.heads, softmax_scale,
                             logits_soft_cap, drop_threshold, static_cast<uint64_t>(dropout_seed)},
                  Visibility{causal, window_left, window_right}};
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            query_seq_lengths, key_value_seq_lengths};
  const int64_t first_batch = group.grid_z == 1 ? 0 : group.z, end_batch = group.grid_z == 1 ? sequence_count : group.z + 1;
  const int64_t first_head = group.grid_y == 1 ? 0 : group.y, end_head = group.grid_y == 1 ? q.heads : group.y + 1;
  const int64_t token = group.x * BLOCK_M, rows = smaller(BLOCK_M, q.tokens - token);
  Scratch scratch(group.shared);
  KeyTile t{};
  t.by_score = scratch.by_score;
  for (int64_t first = 0; first < k.tokens; first += BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, k.tokens - first);
    __builtin_memset(scratch.by_score, 0, BLOCK_N * BLOCK_M * sizeof(float));
    for (int64_t b = first_batch; b < end_batch; ++b)
      for (int64_t h = first_head; h < end_head; ++h) add_scores(call, sequences[b], h, token, rows, first, count, scratch);
    for (int64_t r = 0; r < rows; ++r)
      store_bias_row(dbias_view, bias_type, row_offset(dbias_view, group.z, group.y, token + r) + first, t, r, count);
  }
}
$end
