// CPU vocabulary of ragged_page_attention: a chunk of query rows through their keys, by tiles of rows (device/attention/attention_tile.h). Part of a template, which
// has defined before: PANEL, VECTORS, BLOCK_M, BLOCK_N, VALUE_PANEL, D, D_ROWS, RaggedPages, Results.
#pragma once

// A work item: `rows` query rows in `tiles` row tiles, and its scratch.
struct Chunk {
  const ScoreRules& rules;
  const RaggedPages& pages;
  const View& tree_mask;
  Sequence sequence;
  int64_t rows, tiles;
  float* queries;                // [tile][D_ROWS][BLOCK_M]
  float* outputs;                // [tile][D_ROWS][BLOCK_M], sums of weights * values
  float *maxima, *denominators;  // [tile][BLOCK_M]
  float* keys;                   // [BLOCK_N][D]
  float* values;                 // [D / PANEL][VALUE_PANEL], each [BLOCK_N][PANEL]
  float* scores;                 // [BLOCK_N][BLOCK_M]
  Row* row;                      // [tile][BLOCK_M]; past `rows`: copies of the last row
  bool finite_values;            // no NaN or infinity in `values`
};

static void load_queries(Chunk& c, const RowSource& source) {
  for (int64_t r = 0; r < c.tiles * BLOCK_M; r += LANES) {
    float* to = c.queries + r / BLOCK_M * D_ROWS * BLOCK_M + r % BLOCK_M;
    alignas(64) float rows[LANES][D_ROWS];
    for (int lane = 0; lane < LANES; ++lane) source.load(rows[lane], c.sequence.first_query + c.row[r + lane].token, c.row[r + lane].head, D_ROWS);
    for (int64_t d = 0; d < D; d += LANES) {
      Floats block[LANES];
      for (int lane = 0; lane < LANES; ++lane) block[lane] = load_floats(rows[lane] + d);
      transpose(block);
      for (int lane = 0; lane < LANES; ++lane) store_floats(to + (d + lane) * BLOCK_M, block[lane]);
    }
  }
}

// Keys and values [first, first + count); rows of keys up to a whole panel are zeroed.
static void load_block(Chunk& c, int64_t first, int64_t count) {
  constexpr int64_t PIECE = PANEL < LANES ? PANEL : LANES;
  Integers largest = {};
  for (int64_t j = 0; j < count; ++j) {
    const int64_t place = c.pages.place(first + j);
    const Cached *k = c.pages.keys + place, *v = c.pages.values + place;
    float* to = c.keys + j * D;
    for (int64_t d = 0; d < D; d += LANES) {
      const Floats key = load_chunk<D>(k, d / LANES), value = load_chunk<D>(v, d / LANES);
      const Integers magnitude = reinterpret_cast<Integers>(value) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
      float lanes[LANES];
      store_some(to + d, key, D - d);
      store_floats(lanes, value);
      for (int64_t i = 0; i < LANES && d + i < D; i += PIECE)
        __builtin_memcpy(c.values + (d + i) / PANEL * VALUE_PANEL + j * PANEL + (d + i) % PANEL, lanes + i, PIECE * sizeof(float));
    }
  }
  __builtin_memset(c.keys + count * D, 0, (PANEL - count % PANEL) % PANEL * D * sizeof(float));
  c.finite_values = !any(largest >= splat_integer(0x7f800000));
}

// outputs += weights * values, where a value behind a weight of 0 counts as 0 even if it is NaN: another row's key, masked in this one.
static void __attribute__((noinline)) add_values_guarded(const Chunk& c, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < D; ++d)
    for (int v = 0; v < VECTORS; ++v) {
      Floats sum = {};
      for (int64_t j = t.begin; j < t.end; ++j) {
        const Floats weight = load_floats(t.at(j, v));
        sum += weight == Floats{} ? Floats{} : weight * c.values[d / PANEL * VALUE_PANEL + j * PANEL + d % PANEL];
      }
      float* output = t.outputs + d * BLOCK_M + v * LANES;
      store_floats(output, load_floats(output) + sum);
    }
}

// Scores of new tokens that the tree hides become -inf; the maxima are taken anew.
static void __attribute__((noinline)) hide_by_tree(const Chunk& c, Tile<VECTORS>& t) {
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

// Row tile `tile` against the `count` keys in scratch, which start at key `first`.
static void attend_block(Chunk& c, int64_t tile, int64_t first, int64_t count) {
  Tile<VECTORS> t;
  KeyRange every;
  if (!start_tile<PANEL>(t, c, tile, D_ROWS, first, count, every)) return;
  for (int64_t r = 0; r < BLOCK_M; ++r) t.largest[r] = -INFINITE;
  const float* queries = c.queries + tile * D_ROWS * BLOCK_M;
  for (int64_t j = t.begin; j < t.end; j += PANEL)
    panel_product<PANEL, VECTORS, D, 1, false>(c.keys + j * D, queries, D, t.scores + j * BLOCK_M, t.largest);
  const bool hides = is_given(c.tree_mask) && first + t.end > c.sequence.offset;
  if (c.rules.soft_cap > 0) adjust(c.rules, t);
  else if (hides || first + t.begin < every.first || first + t.end > every.end || t.end % PANEL != 0) mask_range(t);
  if (hides) hide_by_tree(c, t);
  follow_maxima(t, D);
  weigh(t);
  if (!c.finite_values) return add_values_guarded(c, t);
  for (int64_t d = 0; d < D; d += PANEL)
    panel_product<PANEL, VECTORS, 1, PANEL, true>(c.values + d / PANEL * VALUE_PANEL + t.begin * PANEL, t.scores + t.begin * BLOCK_M,
                                                  t.end - t.begin, t.outputs + d * BLOCK_M, nullptr);
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
    const float* from = c.outputs + r / BLOCK_M * D_ROWS * BLOCK_M + r % BLOCK_M;
    alignas(64) float rows[LANES][D_ROWS];
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
  const ScoreRules rules{none, none, none, none, TYPE_F32, source.queries.shape[1], scale, cap, 0, 0};
  const int64_t chunk_rows = most_tiles * BLOCK_M, rows = smaller(chunk_rows, of.queries * rows_a_head - first_row);
  Chunk c{rules, pages, tree_mask, Sequence{of.number, 0, of.first, 0, of.queries, of.keys, of.old_keys(), !source.has_sinks, 0}, rows,
          (rows + BLOCK_M - 1) / BLOCK_M, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, true};
  c.queries = static_cast<float*>(group.shared);
  c.outputs = c.queries + most_tiles * D_ROWS * BLOCK_M;
  c.maxima = c.outputs + most_tiles * D_ROWS * BLOCK_M;
  c.denominators = c.maxima + chunk_rows;
  c.keys = c.denominators + chunk_rows;
  c.values = c.keys + BLOCK_N * D;
  c.scores = c.values + D / PANEL * VALUE_PANEL;
  c.row = reinterpret_cast<Row*>(c.scores + BLOCK_N * BLOCK_M);
  fill_rows(c.row, c.tiles * BLOCK_M, first_row, rows, kv_head, rows_a_head, c.sequence, Visibility{!is_given(tree_mask), window_left, -1});
  cut_to_part(c, results);
  load_queries(c, source);
  start_rows(source.softmax_aux, source.sinks_type, source.queries.shape[1], c.sequence, c.row, c.tiles * BLOCK_M, c.maxima, c.denominators);
  __builtin_memset(c.outputs, 0, c.tiles * D_ROWS * BLOCK_M * sizeof(float));
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
  put_results(c, results);
}
