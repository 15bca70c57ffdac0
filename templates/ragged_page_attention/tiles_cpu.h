// CPU vocabulary of ragged_page_attention: a chunk of query rows through their keys, by tiles of rows (device/attention/attention_tile.h). Part of a template, which
// has defined before: VECTORS, BLOCK_M, BLOCK_N, D, OUTPUT_ROWS, RaggedPages, Results. The products are register_tiles_cpu.h's or amx_tiles_cpu.h's.
#pragma once

// A work item: `rows` query rows in `tiles` row tiles, and its scratch.
struct ChunkRows {
  const ScoreRules& rules;
  const RaggedPages& pages;
  const View& tree_mask;
  Sequence sequence;
  int64_t rows, tiles;
  float* queries;                // of a tile, as the products take them
  float* outputs;                // [tile][OUTPUT_ROWS][BLOCK_M], sums of weights * values
  float *maxima, *denominators;  // [tile][BLOCK_M]
  float* scores;                 // [BLOCK_N][BLOCK_M]
  Row* row;                      // [tile][BLOCK_M]; past `rows`: copies of the last row
  bool finite_values;            // no NaN or infinity in values
};

// Scores of new tokens that the tree hides become -inf; the maxima are taken anew.
static void __attribute__((noinline)) hide_by_tree(const ChunkRows& c, Tile<VECTORS>& t) {
  const RaggedSequence sequence{c.sequence.index, c.sequence.first_query, c.sequence.queries, c.sequence.keys};
  for (int64_t r = 0; r < BLOCK_M; ++r) {
    const TreeRow tree(c.tree_mask, sequence, t.row[r].token);
    float most = -INFINITE;
    for (int64_t j = t.begin; j < t.end; ++j) {
      float& score = t.scores[j * BLOCK_M + r];
      if (tree.hides(t.first + j)) score = -INFINITE;
      most = score > most ? score : most;
    }
    t.largest[r] = most;
  }
}

$if amx
#include "ragged_page_attention/amx_tiles_cpu.h"
$else
#include "ragged_page_attention/register_tiles_cpu.h"
$end

// Row tile `tile` against the `count` keys in scratch, which start at key `first`.
static void attend_block(Chunk& c, int64_t tile, int64_t first, int64_t count) {
  Tile<VECTORS> t;
  KeyRange every;
  if (!start_tile<STEP>(t, c, tile, OUTPUT_ROWS, first, count, every)) return;
  multiply_keys(c, t, c.queries + tile * TILE_QUERIES);
  const bool hides = is_given(c.tree_mask) && first + t.end > c.sequence.offset;
  if (c.rules.soft_cap > 0) adjust(c.rules, t);
  else if (hides || first + t.begin < every.first || first + t.end > every.end) mask_range(t);
  else take_maxima(t);
  if (hides) hide_by_tree(c, t);
  follow_maxima(t, D);
  weigh(t);
  if (!c.finite_values) return add_values_guarded(c, t);
  add_values(c, t);
}

// The keys of the chunk's rows that a part has.
static void cut_to_part(Chunk& c, const Results& results) {
  if (results.parts == 1) return;
  const KeyRange some = keys_of_rows(c.row, c.rows);
  const Range part = some.first < some.end ? part_of(some.first, some.end, results.part, results.parts) : Range{0, 0};
  for (int64_t r = 0; r < c.tiles * BLOCK_M; ++r) {
    KeyRange& keys = c.row[r].keys;
    keys = {larger(keys.first, part.begin), smaller(keys.end, part.end)};
    if (keys.first > keys.end) keys.first = keys.end;
  }
}

static void put_results(const Chunk& c, const Results& results) {
  for (int64_t r = 0; r < c.rows; r += LANES) {
    const float* from = c.outputs + r / BLOCK_M * OUTPUT_ROWS * BLOCK_M + r % BLOCK_M;
    alignas(64) float rows[LANES][OUTPUT_ROWS];
    for (int64_t d = 0; d < D; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) block[lane] = load_floats(from + (d + lane) * BLOCK_M);
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) store_floats(rows[lane] + d, block[lane]);
    }
    for (int lane = 0; lane < LANES && r + lane < c.rows; ++lane)
      results.put(c.sequence.first_query + c.row[r + lane].token, c.row[r + lane].head, rows[lane], c.maxima[r + lane], c.denominators[r + lane]);
  }
}

// Asks for keys and values [begin, end), which will be needed soon.
static void prefetch_pages(const RaggedPages& pages, int64_t begin, int64_t end) {
  for (int64_t key = begin; key < end; ++key) {
    const int64_t place = pages.place(key);
    prefetch_row<Cached, D>(pages.keys + place);
    prefetch_row<Cached, D>(pages.values + place);
  }
}

static void attend_tiles(const Group& group, const RaggedSequence& of, const RaggedPages& pages, const Results& results, const RowSource& source,
                         const View& tree_mask, int64_t kv_head, int64_t first_row, int64_t most_tiles, int64_t rows_a_head, int64_t window_left,
                         float scale, float cap) {
  const View none{nullptr, -1, {}, {}};
  const ScoreRules rules{none, none, none, none, TYPE_F32, source.queries.shape[1], scale * query_unit(source), cap, 0, 0};
  const int64_t chunk_rows = most_tiles * BLOCK_M, rows = smaller(chunk_rows, of.queries * rows_a_head - first_row);
  Chunk c{{rules, pages, tree_mask, Sequence{of.number, 0, of.first, 0, of.queries, of.keys, of.old_keys(), !source.has_sinks, 0}, rows,
           (rows + BLOCK_M - 1) / BLOCK_M, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, true}};
  lay_out(c, static_cast<float*>(group.shared), most_tiles, chunk_rows);
  fill_rows(c.row, c.tiles * BLOCK_M, first_row, rows, kv_head, rows_a_head, c.sequence, Visibility{!is_given(tree_mask), window_left, -1});
  cut_to_part(c, results);
  load_queries(c, source);
  start_rows(source.softmax_aux, source.sinks_type, source.queries.shape[1], c.sequence, c.row, c.tiles * BLOCK_M, c.maxima, c.denominators);
  __builtin_memset(c.outputs, 0, c.tiles * OUTPUT_ROWS * BLOCK_M * sizeof(float));
  start_products(c);
  const KeyRange some = keys_of_rows(c.row, c.rows);
  for (int64_t first = some.first; first < some.end; first += BLOCK_N) {
    const int64_t count = smaller(BLOCK_N, some.end - first), next = first + count;
    load_block(c, first, count);
    for (int64_t tile = 0; tile < c.tiles; ++tile) {
      const int64_t ahead = smaller(BLOCK_N, some.end - next);
      prefetch_pages(pages, next + ahead * tile / c.tiles, next + ahead * (tile + 1) / c.tiles);
      attend_block(c, tile, first, count);
    }
  }
  end_products();
  put_results(c, results);
}
